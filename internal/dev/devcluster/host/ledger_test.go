package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestALedgerRemembersInOrder(t *testing.T) {
	l := &Ledger{path: filepath.Join(t.TempDir(), "ledger")}
	want := []Record{
		{Kind: KindNamespace, Name: "dormouse-node-1"},
		{Kind: KindProcess, Name: "etcd", PID: 7, Started: "boot/1"},
		{Kind: KindProcess, Name: "etcd", PID: 9, Started: "boot/2"},
	}
	for _, r := range want {
		if err := l.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := (&Ledger{path: l.path}).Records()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	latest, err := l.Processes()
	if err != nil {
		t.Fatal(err)
	}
	if got := latest["etcd"].PID; got != 9 {
		t.Errorf("latest etcd has pid %d, want 9", got)
	}
}

func TestALineCutShortByACrashIsLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(path, []byte(`{"kind":"route","name":"a"}`+"\n"+`{"kind":"pro`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := (&Ledger{path: path}).Records()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Record{{Kind: KindRoute, Name: "a"}}, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestAMissingLedgerIsEmpty(t *testing.T) {
	got, err := (&Ledger{path: filepath.Join(t.TempDir(), "none")}).Records()
	if err != nil || len(got) != 0 {
		t.Errorf("records are %v, %v", got, err)
	}
}

func TestAPidThatWasGivenToAnotherProcessIsLeftAlone(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stale := Record{Kind: KindProcess, Name: "sleep", PID: cmd.Process.Pid, Started: "another boot/1"}
	if err := stale.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	current := stale
	current.Started = startOf(cmd.Process.Pid)
	if !current.Alive() {
		t.Fatal("the process was stopped for another's record")
	}
	if err := current.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
	if current.Alive() {
		t.Error("the process is alive after stop")
	}
}

func TestAProcessNameCannotForgeItsStartTime(t *testing.T) {
	ticks, state := parseStat([]byte("7 (a) R (b)) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4242 100 1"))
	if ticks != "4242" || state != "S" {
		t.Errorf("parsed start %q and state %q", ticks, state)
	}
}
