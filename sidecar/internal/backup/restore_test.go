package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/klauspost/compress/zstd"

	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
)

func TestABadArchiveLeavesTheDiskAsItWas(t *testing.T) {
	outside := t.TempDir()
	good := packed(t, file("world/level.dat", strings.Repeat("good", 100_000)), file("mods/mod.jar", "good"))
	for name, c := range map[string]struct {
		archive []byte
		sum     string
		says    string
	}{
		"..":                     {packed(t, file("world/ok", ""), file("world/../../evil", "evil")), "", "leads out of its disk"},
		".. as a link's name":    {packed(t, linkTo("world/../evil", "x")), "", "leads out of its disk"},
		"an absolute name":       {packed(t, file("world/ok", ""), file("/world/evil", "evil")), "", "must be a relative path"},
		"a link written through": {packed(t, linkTo("world/a", outside), file("world/a/evil", "evil")), "", "nothing is written through a link"},
		"a link to the inside":   {packed(t, special("world/d", tar.TypeDir), linkTo("world/a", "d"), file("world/a/evil", "evil")), "", "nothing is written through a link"},
		"a link as a directory":  {packed(t, linkTo("world/a", outside), special("world/a", tar.TypeDir)), "", "nothing is written through a link"},
		"a link as a file":       {packed(t, linkTo("world/a", outside+"/evil"), file("world/a", "evil")), "", "twice"},
		"a file twice":           {packed(t, file("world/a", "1"), file("world/a", "2")), "", "twice"},
		"a file as a directory":  {packed(t, file("world/a", "1"), file("world/a/b", "2")), "", "twice"},
		"a disk that is a file":  {packed(t, file("world", "1")), "", "something else than a directory"},
		"a device":               {packed(t, file("world/ok", ""), special("world/null", tar.TypeChar)), "", "neither a file"},
		"a FIFO":                 {packed(t, special("world/fifo", tar.TypeFifo)), "", "neither a file"},
		"a hard link outside":    {packed(t, hardLinkTo("world/l", "/etc/passwd")), "", "must be a relative path"},
		"with ..":                {packed(t, hardLinkTo("world/l", "world/../../evil")), "", "leads out of its disk"},
		"to what isn't there":    {packed(t, hardLinkTo("world/l", "world/a"), file("world/a", "")), "", "no file of the same disk before it"},
		"to what was there":      {packed(t, hardLinkTo("world/l", "world/level.dat")), "", "no file of the same disk before it"},
		"to another disk":        {packed(t, file("mods/a", ""), hardLinkTo("world/l", "mods/a")), "", "no file of the same disk before it"},
		"to a disk":              {packed(t, special("world/a", tar.TypeDir), hardLinkTo("world/l", "world")), "", "no file of the same disk before it"},
		"to a directory":         {packed(t, special("world/a", tar.TypeDir), hardLinkTo("world/l", "world/a")), "", "no file of the same disk before it"},
		"to a link":              {packed(t, linkTo("world/a", outside+"/a"), hardLinkTo("world/l", "world/a")), "", "no file of the same disk before it"},
		"through a link":         {packed(t, linkTo("world/a", "/etc"), hardLinkTo("world/l", "world/a/passwd")), "", "no file of the same disk before it"},
		"a hard link twice":      {packed(t, file("world/a", ""), file("world/l", ""), hardLinkTo("world/l", "world/a")), "", "twice"},
		"written through":        {packed(t, linkTo("world/d", outside), file("world/a", ""), hardLinkTo("world/d/l", "world/a")), "", "nothing is written through a link"},
		"other disks":            {packed(t, file("maps/a", ""), file("other/b", "")), "", "it has maps, other"},
		"too deep":               {packed(t, file("world/"+strings.Repeat("d/", 600)+"f", "")), "", "directories deep"},
		"nothing":                {nil, "", "empty"},
		"no archive":             {[]byte("PK\x03\x04 a zip file"), "", "damaged"},
		"its half":               {good[:len(good)/2], "", "damaged"},
		"all but a byte":         {good[:len(good)-1], "", "damaged"},
		"a changed byte":         {append(bytes.Clone(good[:len(good)-2]), good[len(good)-2]^1, good[len(good)-1]), "", "damaged"},
		"something behind it":    {append(bytes.Clone(good), "more"...), "", "damaged"},
		"another SHA-256":        {good, strings.Repeat("0", 64), "SHA-256"},
		"a large window":         {huge(t), "", "window"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			write(t, p.archive(), string(c.archive))
			allKinds(t, p.world)
			leftOut(t, p.world)
			want := tree(t, p.world)
			o := p.options(commandRestore)
			o.SHA256 = c.sum
			r, err := p.run(t.Context(), t, o)
			if exitCode(err) != codeFinal || !strings.Contains(r.Error, c.says) {
				t.Errorf("error %v, want a final one with %q", err, c.says)
			}
			same(t, "the disk", want, tree(t, p.world))
			same(t, "the other disk", map[string]string{}, tree(t, p.mods))
			if left, _ := os.ReadDir(outside); len(left) > 0 {
				t.Errorf("outside there is %v", left)
			}
		})
	}
}

// huge is an archive that takes much memory to unpack.
func huge(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, zstd.WithWindowSize(64<<20))
	check(t, err)
	_, err = w.Write(bytes.Repeat([]byte("x"), 65<<20))
	check(t, err)
	check(t, w.Close())
	return out.Bytes()
}

func TestOnlyTheDisksThatAreNamedAreWritten(t *testing.T) {
	p := newPlace(t)
	write(t, p.archive(), string(packed(t, file("other/a", "1"), file("./world/made/by/hand", "2"), file("world/lost+found/1", "no"), file("world/.dormouse-before-r1/x", "no"))))
	write(t, p.mods+"/stays", "as it is")
	r, err := p.run(t.Context(), t, p.options(commandRestore))
	check(t, err)
	if r.Files != 1 || strings.Join(r.Disks, " ") != "world" {
		t.Errorf("report %+v", r)
	}
	if got, err := os.ReadFile(p.world + "/made/by/hand"); err != nil || string(got) != "2" {
		t.Errorf("restored %q, %v", got, err)
	}
	if all := tree(t, p.mods); len(all) != 1 {
		t.Errorf("the other disk has %v", all)
	}
	if _, err := os.Stat(p.world + "/lost+found"); err == nil {
		t.Error("lost+found was written")
	}
}

func TestACanceledRestorationLeavesTheDiskAsItWas(t *testing.T) {
	p := newPlace(t)
	write(t, p.archive(), string(packed(t, file("world/a", "1"), file("world/b", "2"))))
	write(t, p.world+"/level.dat", "old")
	want := tree(t, p.world)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := restore(ctx, p.options(commandRestore), logs(t), func(what string) error {
		if what == "world: write world/a" {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, fault.ErrCanceled) || exitCode(err) != codeFailed {
		t.Errorf("error %v", err)
	}
	same(t, "the disk", want, tree(t, p.world))
}

func TestWhatIsInTheWayIsSaid(t *testing.T) {
	p := newPlace(t)
	write(t, p.archive(), string(packed(t, file("world/a", "1"))))
	write(t, p.world+"/.dormouse-before-r1/x", "somebody's")
	want := tree(t, p.world)
	r, err := p.run(t.Context(), t, p.options(commandRestore))
	if exitCode(err) != codeFinal || !strings.Contains(r.Error, ".dormouse-before-r1 already") {
		t.Errorf("error %v", err)
	}
	same(t, "the disk", want, tree(t, p.world))
	// What begins with that name and is a link is deleted, not followed.
	outside := t.TempDir()
	write(t, outside+"/files/kept", "outside")
	q := newPlace(t)
	check(t, os.Symlink(outside, q.world+"/.dormouse-restore-r1"))
	o := q.options(commandRestore)
	o.Archive.File = p.archive()
	_, err = p.run(t.Context(), t, o)
	check(t, err)
	if _, err := os.Stat(outside + "/files/kept"); err != nil {
		t.Error(err)
	}
}

// scene is a restoration of two disks that have other things.
type scene struct {
	place
	old, new [2]map[string]string
}

func newScene(t *testing.T) scene {
	t.Helper()
	from := newPlace(t)
	write(t, from.world+"/level.dat", "new")
	write(t, from.world+"/region/r.0.0.mca", "new chunks")
	write(t, from.world+"/sealed/file", "new")
	check(t, os.Symlink("level.dat", from.world+"/link"))
	check(t, os.Chmod(from.world+"/sealed", 0o555))
	write(t, from.mods+"/mod.jar", "new")
	_, err := backup(t.Context(), from.options(commandBackup), logr.Discard())
	check(t, err)
	s := scene{place: newPlace(t)}
	s.new = [2]map[string]string{tree(t, from.world), tree(t, from.mods)}
	write(t, s.world+"/level.dat", "old")
	write(t, s.world+"/sealed/old", "old")
	write(t, s.world+"/lost+found/x", "lost")
	check(t, os.Chmod(s.world+"/sealed", 0o555))
	write(t, s.mods+"/old.jar", "old")
	content, err := os.ReadFile(from.archive())
	check(t, err)
	write(t, s.archive(), string(content))
	s.old = [2]map[string]string{tree(t, s.world), tree(t, s.mods)}
	return s
}

func (s scene) isOld(t *testing.T) bool {
	t.Helper()
	return maps.Equal(s.old[0], tree(t, s.world)) && maps.Equal(s.old[1], tree(t, s.mods))
}

// checkRestored looks whether the disks have the new contents, and all of the old ones aside.
func (s scene) checkRestored(t *testing.T) {
	t.Helper()
	for i, dir := range []string{s.world, s.mods} {
		same(t, "what was restored", s.new[i], visible(tree(t, dir)))
		same(t, "what was there", visible(maps.Clone(s.old[i])), tree(t, dir+"/.dormouse-before-r1"))
	}
	if _, err := os.Stat(s.world + "/lost+found/x"); err != nil {
		t.Error(err)
	}
}

var errInjected = errors.New("injected")

// failing fails the steps from one to another one; the first is 1.
func failing(from, to int) func(string) error {
	step := 0
	return func(what string) error {
		step++
		if step >= from && step <= to {
			return fmt.Errorf("%w: %s", errInjected, what)
		}
		return nil
	}
}

// untouched is whether the disks have all that they had, though something may lie beside it.
func (s scene) untouched(t *testing.T) bool {
	t.Helper()
	has := func(was map[string]string, dir string) bool {
		return maps.Equal(visible(maps.Clone(was)), visible(tree(t, dir)))
	}
	return has(s.old[0], s.world) && has(s.old[1], s.mods)
}

func (s scene) restore() error {
	_, err := s.report(nil)
	return err
}

func (s scene) report(step func(string) error) (Report, error) {
	return restore(context.Background(), s.options(commandRestore), logr.Discard(), step)
}

func TestAFailureAtAnyStepIsMadeUpFor(t *testing.T) {
	for name, lasts := range map[string]int{"once": 0, "three times": 2, "from then on": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			undone, steps, halfMoved := 0, 0, 0
			for at := 1; ; at++ {
				s := newScene(t)
				report, err := s.report(failing(at, at+lasts))
				if err == nil {
					steps = at
					s.checkRestored(t)
					break
				}
				if !errors.Is(err, errInjected) {
					t.Fatalf("step %d: %v", at, err)
				}
				if s.isOld(t) {
					undone++
				}
				if report.Between {
					halfMoved++
				}
				if old := s.untouched(t); !old && !report.Between || s.isOld(t) && report.Between {
					t.Errorf("after a failure at step %d it says half moved: %v; the disks have what they had: %v", at, report.Between, old)
				}
				if err := s.restore(); err != nil {
					t.Fatalf("after a failure at step %d: %v", at, err)
				}
				s.checkRestored(t)
				if t.Failed() {
					t.Fatalf("after a failure at step %d: %v", at, err)
				}
			}
			// What can be undone is: only the last steps, once all is there, aren't.
			if steps < 40 || lasts == 0 && undone < steps*2/3 {
				t.Errorf("%d steps, of which %d left the disks as they were", steps, undone)
			}
			if lasts > 2 && halfMoved < 10 {
				t.Errorf("after %d of %d steps the disks are said to be half moved", halfMoved, steps)
			}
		})
	}
}

// Nobody deletes later what a new disk had before: it has nothing but what each has.
func TestNothingIsKeptOfANewDisk(t *testing.T) {
	s := newScene(t)
	check(t, errors.Join(os.Chmod(s.world+"/sealed", 0o755), os.RemoveAll(s.world+"/sealed"), os.Remove(s.world+"/level.dat")))
	for range 2 { // another try of what is done changes nothing
		check(t, s.restore())
		same(t, "what was restored", s.new[0], visible(tree(t, s.world)))
		if _, err := os.Lstat(s.world + "/.dormouse-before-r1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a directory for nothing is there (%v)", err)
		}
		same(t, "what was there", s.old[1], tree(t, s.mods+"/.dormouse-before-r1"))
	}
	check(t, dropPrevious(t.Context(), s.options(commandDrop), nil))
}

// The report says so, too: here an earlier try's mark can't be read.
func TestTheReportSaysThatTheDisksAreHalfMoved(t *testing.T) {
	s := newScene(t)
	write(t, s.world+"/.dormouse-before-r1/level.dat", "old")
	write(t, s.world+"/.dormouse-restore-r1/verified", "not JSON")
	report, err := s.run(t.Context(), t, s.options(commandRestore))
	if err == nil || report.Error == "" || !report.Between {
		t.Errorf("it ends with %v, and reports %+v", err, report)
	}
}

// Storage that breaks may break the undoing, too, and be there again later. What can't be read then counts as half
// moved, and another try has nothing lost.
func TestADiskThatBreaksAtAnyStepIsMadeUpFor(t *testing.T) {
	for at := 1; ; at++ {
		s := newScene(t)
		o := s.options(commandRestore)
		var all []*target
		steps := 0
		all, closeAll, err := openTargets(o, func(string) error {
			if steps++; steps == at {
				for _, t := range all {
					_ = t.root.Close()
				}
			}
			return nil
		})
		check(t, err)
		r := &restoration{opts: o, log: logr.Discard(), all: all}
		_, err = r.run(t.Context())
		between := r.between()
		closeAll()
		if steps < at {
			if err != nil || at < 20 {
				t.Errorf("after %d steps it ends with %v", steps, err)
			}
			return
		}
		if err == nil {
			continue // the last changes need no disk any more
		}
		if !between && !s.untouched(t) {
			t.Errorf("step %d: the disks are half moved, and it doesn't say so", at)
		}
		if err := s.restore(); err != nil {
			t.Errorf("step %d: another try ends with %v", at, err)
			continue
		}
		s.checkRestored(t)
	}
}

// A disk that can't be opened for now may be half moved by an earlier try, unlike one that isn't there.
func TestADiskThatCannotBeOpenedMayBeHalfMoved(t *testing.T) {
	for errno, may := range map[syscall.Errno]bool{syscall.EIO: true, syscall.ESTALE: true, syscall.ENOTCONN: true, syscall.ENOENT: false, syscall.ENOTDIR: false, syscall.EACCES: false} {
		if got := mayBeBetween(fmt.Errorf("open disk world: %w", &fs.PathError{Op: "openat", Path: "/disks/world", Err: errno})); got != may {
			t.Errorf("with %q it may be half moved: %t", errno, got)
		}
	}
}

// child is the test's program as a process of its own, which is killed at a step.
func child() {
	kill, _ := strconv.Atoi(os.Getenv("BACKUP_TEST_KILL"))
	fail, _ := strconv.Atoi(os.Getenv("BACKUP_TEST_FAIL"))
	dir := os.Getenv("BACKUP_TEST_DIR")
	p := place{dir + "/backups", dir + "/world", dir + "/mods"}
	step := 0
	hook := func(string) error {
		step++
		if step == kill {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if step == fail {
			return errInjected
		}
		return nil
	}
	o := p.options(os.Getenv(inChild))
	var err error
	switch o.Command {
	case commandRestore:
		_, err = restore(context.Background(), o, logr.Discard(), hook)
	case commandDrop:
		err = dropPrevious(context.Background(), o, hook)
	default:
		_, err = backup(context.Background(), o, logr.Discard())
	}
	if err != nil {
		fmt.Println(err)
	}
	os.Exit(exitCode(err))
}

func inProcess(t *testing.T, p place, command string, kill, fail int, as *syscall.Credential) (code int, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), inChild+"="+command, "BACKUP_TEST_DIR="+filepath.Dir(p.world),
		fmt.Sprint("BACKUP_TEST_KILL=", kill), fmt.Sprint("BACKUP_TEST_FAIL=", fail))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// asNobody runs it as a user without root's rights.
func asNobody(t *testing.T, p place, command string, kill, fail int) (code int, text string) {
	t.Helper()
	dir := filepath.Dir(p.world)
	check(t, errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)))
	return inProcess(t, p, command, kill, fail, &syscall.Credential{Uid: 65534, Gid: 65534})
}

func TestARestorationThatIsKilledAtAnyStepEndsAsOneThatIsNot(t *testing.T) {
	kills := 0
	for at := 1; ; at++ {
		s := newScene(t)
		code, text := inProcess(t, s.place, commandRestore, at, 0, nil)
		if code == 0 {
			s.checkRestored(t)
			break
		}
		if code != -1 {
			t.Fatalf("step %d: code %d, %s", at, code, text)
		}
		kills++
		if err := s.restore(); err != nil {
			t.Fatalf("after a kill at step %d: %v", at, err)
		}
		s.checkRestored(t)
		if t.Failed() {
			t.Fatalf("after a kill at step %d", at)
		}
	}
	if kills < 40 {
		t.Errorf("there were %d steps", kills)
	}
}

func TestARestorationThatIsKilledWhileItIsUndoneEndsAsOneThatIsNot(t *testing.T) {
	kills := 0
	// Each third step fails, and each one after it kills.
	for fail := 2; ; fail += 3 {
		s := newScene(t)
		if code, _ := inProcess(t, s.place, commandRestore, 0, fail, nil); code == 0 {
			break
		}
		for kill := fail + 1; ; kill++ {
			s := newScene(t)
			code, text := inProcess(t, s.place, commandRestore, kill, fail, nil)
			if code != -1 {
				break
			}
			kills++
			if err := s.restore(); err != nil {
				t.Fatalf("after a failure at step %d and a kill at step %d: %v %s", fail, kill, err, text)
			}
			s.checkRestored(t)
			if t.Failed() {
				t.Fatalf("after a failure at step %d and a kill at step %d", fail, kill)
			}
		}
	}
	if kills < 80 {
		t.Errorf("there were %d kills", kills)
	}
}

func TestWhatWasThereIsDeletedOnceTheRestorationIsDone(t *testing.T) {
	// One that is killed while the disks change can't be dropped.
	refused := 0
	for at := 1; ; at++ {
		s := newScene(t)
		code, _ := inProcess(t, s.place, commandRestore, at, 0, nil)
		if code == 0 {
			break
		}
		moving := false
		for _, dir := range []string{s.world, s.mods} {
			_, err := os.Stat(dir + "/.dormouse-before-r1")
			moving = moving || err == nil
		}
		if !moving {
			continue
		}
		if err := dropPrevious(t.Context(), s.options(commandDrop), nil); err != nil {
			refused++
			if exitCode(err) != codeFinal {
				t.Errorf("error %v", err)
			}
			if err := s.restore(); err != nil {
				t.Fatal(err)
			}
			s.checkRestored(t)
		}
	}
	if refused < 10 {
		t.Errorf("refused %d times", refused)
	}
	for at := 1; ; at++ {
		s := newScene(t)
		check(t, s.restore())
		code, _ := inProcess(t, s.place, commandDrop, at, 0, nil)
		check(t, dropPrevious(t.Context(), s.options(commandDrop), nil))
		for i, dir := range []string{s.world, s.mods} {
			all := tree(t, dir)
			delete(all, "lost+found")
			delete(all, "lost+found/x")
			same(t, "the disk", s.new[i], all)
		}
		if code == 0 {
			break
		}
	}
}

func TestAUserWithoutRightsRestoresWhatIsSealed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root becomes another user")
	}
	s := newScene(t)
	for _, dir := range []string{s.world, s.mods} {
		check(t, filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(name, 65534, 65534))
		}))
	}
	if code, text := asNobody(t, s.place, commandRestore, 0, 0); code != 0 {
		t.Fatal(text)
	}
	for name, want := range map[string]os.FileMode{"sealed": 0o555, ".dormouse-before-r1/sealed": 0o555, "region": 0o755} {
		if info, err := os.Stat(s.world + "/" + name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if got, err := os.ReadFile(s.world + "/sealed/file"); err != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
	if code, text := asNobody(t, s.place, commandDrop, 0, 0); code != 0 {
		t.Error(text)
	}
	if _, err := os.Stat(s.world + "/.dormouse-before-r1"); err == nil {
		t.Error("what was there is left")
	}
}
