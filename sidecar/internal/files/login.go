package files

import (
	"context"
	"errors"
	"net/netip"

	"golang.org/x/crypto/ssh"
)

// maxTries bounds the passwords and keys of one connection.
const maxTries = 6

// errDenied is all that anybody is shown of a login that failed.
var errDenied = errors.New("permission denied")

// login is the login of one connection.
type login struct {
	*Server

	ctx  context.Context //nolint:containedctx // SSH's callbacks have none
	from netip.Prefix
	// method is the last one that was let in.
	method string
}

func (l *login) config() *ssh.ServerConfig {
	config := &ssh.ServerConfig{
		MaxAuthTries: maxTries, ServerVersion: "SSH-2.0-Dormouse",
		PasswordCallback: l.password, PublicKeyCallback: l.key,
	}
	// Without what is only there for old programs, such as SHA-1.
	algorithms := ssh.SupportedAlgorithms()
	config.KeyExchanges, config.Ciphers, config.MACs = algorithms.KeyExchanges, algorithms.Ciphers, algorithms.MACs
	config.PublicKeyAuthAlgorithms = algorithms.PublicKeyAuths
	config.AddHostKey(l.hostKey)
	return config
}

func (l *login) password(c ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
	if !l.guard.try(l.from) {
		l.metrics.refused(refusedThrottled)
		return nil, errDenied
	}
	recent, tries := l.guard.standing(l.from)
	if !l.turns.take(l.ctx, &turn{recent: recent, tries: tries, user: c.User()}) {
		return nil, errDenied
	}
	defer l.turns.leave()
	if !l.users.checkPassword(c.User(), password) {
		l.metrics.refused(refusedPassword)
		return nil, errDenied
	}
	l.guard.succeeded(l.from)
	l.method = "password"
	return nil, nil
}

// key is asked before the client has shown that the key is its own, which SSH has it do then.
func (l *login) key(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	if !l.users.hasKey(c.User(), key) {
		l.metrics.refused(refusedKey)
		return nil, errDenied
	}
	l.method = "publickey"
	return nil, nil
}
