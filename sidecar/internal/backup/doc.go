// Package backup has the programs that copy a game server's disks: `sidecar backup` packs them into
// one archive, in a file or in a bucket, `sidecar restore` puts an archive, or another server's disks,
// in place of what is on them, `sidecar drop-previous` deletes what was there before, and
// `sidecar forget` deletes an archive. Each runs once, in a Job's Pod, as the game's user, and says
// in a Report how it ended. Package store keeps the archives, and package fault tells what another try can
// mend.
//
// An archive is tar in zstd, with the names <disk>/<path>. A disk is somebody else's: it is read and
// written through os.Root, one directory at a time, and no link on it is followed.
//
// # How a restoration can't be torn
//
// All of it is extracted into .dormouse-restore-<id>/files on each disk first, is checked, and is made
// durable. Only then a file "verified" is written beside it, on each disk, and the disks change: what
// was there moves into .dormouse-before-<id>; "moved" is written; what was extracted moves up; and once
// that is so on all disks, "done" is written. All of these moves are renames. A try that finds
// "verified" on all disks goes on from there without the archive; one that doesn't begins anew. Where a
// disk refuses a move, the moves go the other way, on all disks, and "verified" is deleted: a try that was
// killed in between goes on, too. `sidecar settle` brings out of between what was given up: a disk that was
// written and isn't there any more, or was made anew, keeps the others from nothing.
package backup
