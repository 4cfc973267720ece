package files

import (
	"bytes"
	"crypto/subtle"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/crypto/ssh"
)

// Files of a user, after its name.
const (
	passwordSuffix = ".password"
	keysSuffix     = ".keys"
)

const (
	// maxCost bounds the work for one password: a second or so.
	maxCost = 14
	// maxUserFile bounds a user's file in bytes, and maxKeys the keys in it.
	maxUserFile = 64 << 10
	maxKeys     = 64
)

// userName is what may be part of a file's name.
var userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

// users reads a directory, as a Secret is mounted, anew for each login.
type users struct{ dir string }

// checkPassword reports whether a password is the user's. It takes as long for a user that isn't
// there.
func (u users) checkPassword(name string, password []byte) bool {
	hash, dummy := u.hash(name), u.dummy()
	there := hash != nil
	if !there {
		hash = dummy
	}
	return bcrypt.CompareHashAndPassword(hash, password) == nil && there
}

// hash is a user's, or nil.
func (u users) hash(name string) []byte {
	hash := bytes.TrimSpace(u.read(name, passwordSuffix))
	if cost, err := bcrypt.Cost(hash); err != nil || cost > maxCost {
		return nil
	}
	return hash
}

// dummy is a hash that no password has, and that costs as much as those of the users. All of
// these are expected to cost the same.
func (u users) dummy() []byte {
	cost := bcrypt.DefaultCost
	names, _ := filepath.Glob(filepath.Join(u.dir, "*"+passwordSuffix))
	for _, path := range names {
		hash := u.hash(strings.TrimSuffix(filepath.Base(path), passwordSuffix))
		if c, err := bcrypt.Cost(hash); err == nil {
			cost = c
			break
		}
	}
	return fmt.Appendf(nil, "$2a$%02d$%s", cost, strings.Repeat(".", 53))
}

// hasKey reports whether a key is one of the user's.
func (u users) hasKey(name string, key ssh.PublicKey) bool {
	offered := key.Marshal()
	rest := u.read(name, keysSuffix)
	for range maxKeys {
		var candidate ssh.PublicKey
		var options []string
		var err error
		if candidate, _, options, rest, err = ssh.ParseAuthorizedKey(rest); err != nil {
			return false
		}
		// An option such as from= would be a limit that isn't kept here.
		if len(options) == 0 && subtle.ConstantTimeCompare(candidate.Marshal(), offered) == 1 {
			return true
		}
	}
	return false
}

// read reads a user's file; nothing where there is none.
func (u users) read(name, suffix string) []byte {
	if !userName.MatchString(name) {
		return nil
	}
	f, err := os.Open(filepath.Join(u.dir, name+suffix))
	if err != nil {
		return nil
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxUserFile+1))
	if err != nil || len(content) > maxUserFile {
		return nil
	}
	return content
}
