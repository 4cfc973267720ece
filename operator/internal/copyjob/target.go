package copyjob

import (
	"cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// authorityFile is the name of the certificate in the bucket's Secret.
const authorityFile = "ca.crt"

const (
	archiveSuffix = ".tar.zst"
	// uidInArchive is how much of a Backup's UID its archive's name has.
	uidInArchive = 8
)

// Archive is where a Backup's archive is to be, below the target. The name has a part of the UID: an archive
// outlives its Backup if that says so, and another Backup of the name must not write over it.
func Archive(b *v1alpha1.Backup) string {
	return b.Spec.Server + "/" + b.Name + "-" + string(b.UID[:min(len(b.UID), uidInArchive)]) + archiveSuffix
}

// URL is where the archive of a Backup that has begun is, for the Job's program: in the disk for copies, or in
// the bucket, which several namespaces may share. It is empty for snapshots, which have no archive.
func URL(b *v1alpha1.Backup) string {
	// Earlier versions noted no path.
	path := cmp.Or(b.Status.Archive, b.Spec.Server+"/"+b.Name+archiveSuffix)
	switch to := b.Status.To; {
	case to.Claim != nil:
		return "file://" + claimPath + "/" + path
	case to.Bucket != nil:
		return "s3://" + to.Bucket.Name + "/" + to.Bucket.Prefix + b.Namespace + "/" + path
	}
	return ""
}

// Flags are those with which the program finds the bucket's service. The file with the authority's
// certificate is there only if the Secret has one.
func Flags(target *v1alpha1.BackupTarget) []string {
	if target.Bucket == nil {
		return nil
	}
	flags := []string{"--s3-endpoint=" + target.Bucket.Endpoint}
	if target.Bucket.Region != "" {
		flags = append(flags, "--s3-region="+target.Bucket.Region)
	}
	return append(flags, "--s3-ca-file="+authorityPath+"/"+authorityFile)
}
