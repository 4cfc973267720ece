package files

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"dormouse.dev/dormouse/test/env"
)

// OpenSSH's client puts and gets many small files and a large one, and resumes an upload.
func TestOpenSSHsClient(t *testing.T) {
	if err := env.InstallDebian(t.Context(), "openssh-client", "sftp", t.Output()); errors.Is(err, env.ErrNotInstalled) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, nil)
	local := t.TempDir()
	check(t, os.Mkdir(local+"/small", 0o755))
	for i := range 2000 {
		w.write(fmt.Sprintf("%s/small/%04d", local, i), fmt.Sprintf("file %d", i))
	}
	large := make([]byte, 64<<20)
	_, _ = rand.Read(large)
	w.write(local+"/large", string(large))
	w.write(w.root+"/resumed", string(large[:20<<20]))
	w.write(local+"/resumed", string(large))
	w.write(local+"/key", string(w.bobKey))
	w.write(local+"/batch", fmt.Sprintf(`put -R %[1]s/small
put %[1]s/large
reput %[1]s/resumed
chmod 600 large
get -R small %[1]s/back
get large %[1]s/back/large
rename large larger
ln -s larger link
ls -l
`, local))
	host, port, err := net.SplitHostPort(w.address)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "sftp", "-b", local+"/batch", "-i", local+"/key", "-P", port, "-F", "none",
		"-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "bob@"+host).CombinedOutput()
	if err != nil {
		t.Fatalf("sftp: %v\n%s", err, out)
	}
	want := sha256.Sum256(large)
	for _, name := range []string{w.root + "/larger", w.root + "/link", w.root + "/resumed", local + "/back/large"} {
		if sha256.Sum256([]byte(w.read(name))) != want {
			t.Errorf("%s isn't what was put", filepath.Base(name))
		}
	}
	for i := range 2000 {
		for _, dir := range []string{w.root + "/small", local + "/back"} {
			if got := w.read(fmt.Sprintf("%s/%04d", dir, i)); got != fmt.Sprintf("file %d", i) {
				t.Fatalf("file %d in %s has %q", i, dir, got)
			}
		}
	}
}
