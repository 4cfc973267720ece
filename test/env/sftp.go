package env

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sftpHost is the name by which the client knows the server's key, wherever it is.
const sftpHost = "files"

// SFTP is somebody with OpenSSH's sftp and a key, who knows the server's host key.
type SFTP struct {
	e          *Env
	dir        string
	host, user []byte
}

// SFTP makes keys for a server and a user of it, in a directory that goes with the test.
func (e *Env) SFTP(ctx context.Context, dir string, progress io.Writer) (*SFTP, error) {
	if err := InstallDebian(ctx, "openssh-client", "sftp", progress); err != nil {
		return nil, err
	}
	s := &SFTP{e: e, dir: dir}
	host, hostKey, err := sshKey()
	if err != nil {
		return nil, err
	}
	user, userKey, err := sshKey()
	if err != nil {
		return nil, err
	}
	s.host, s.user = hostKey, ssh.MarshalAuthorizedKey(user)
	for name, content := range map[string][]byte{
		"key": userKey, "known": append([]byte(sftpHost+" "), ssh.MarshalAuthorizedKey(host)...),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("write a key: %w", err)
		}
	}
	return s, nil
}

func sshKey() (ssh.PublicKey, []byte, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, nil, fmt.Errorf("write a key: %w", err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	return key, pem.EncodeToMemory(block), nil
}

// Secret is what the server of the files needs: its key, and the user alice with hers.
func (s *SFTP) Secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string][]byte{"host": s.host, "alice.keys": s.user},
	}
}

// Command is OpenSSH's sftp to an address, which reads its commands from a file, or from its standard
// input where that is "-". Start it with InPlayer.
func (s *SFTP) Command(ctx context.Context, address, batch string) (*exec.Cmd, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("read the address of files: %w", err)
	}
	return exec.CommandContext(ctx, "sftp", "-o", "LogLevel=ERROR", "-b", batch, "-i", filepath.Join(s.dir, "key"), "-P", port, "-F", "none",
		"-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "StrictHostKeyChecking=yes", "-o", "HostKeyAlias="+sftpHost,
		"-o", "UserKnownHostsFile="+filepath.Join(s.dir, "known"), "-o", "ConnectTimeout=60", "alice@"+host), nil
}

// Do runs commands of sftp as a player's computer does, and returns what it wrote.
func (s *SFTP) Do(ctx context.Context, address string, commands ...string) (string, error) {
	cmd, err := s.Command(ctx, address, "-")
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(commands, "\n")+"\n"), &out, &out
	if err := s.e.Cluster.InPlayer(cmd.Start); err != nil {
		return "", fmt.Errorf("start sftp: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("sftp to %s: %w\n%s", address, err, out.String())
	}
	return out.String(), nil
}

// Config is that of Go's SSH client, for who measures it.
func (s *SFTP) Config() (*ssh.ClientConfig, error) {
	key, err := os.ReadFile(filepath.Join(s.dir, "key"))
	if err != nil {
		return nil, fmt.Errorf("read a key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("read a key: %w", err)
	}
	host, err := ssh.ParsePrivateKey(s.host)
	if err != nil {
		return nil, fmt.Errorf("read the host's key: %w", err)
	}
	return &ssh.ClientConfig{
		User: "alice", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(host.PublicKey()),
	}, nil
}
