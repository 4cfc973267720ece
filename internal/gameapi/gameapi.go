// Package gameapi is the API for game processes: the code by which a game shows whose it is, and how
// the REST API hands a game's calls to the sidecar of its Server.
package gameapi

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Names of the environment variables that a game of a Server with this API has. Its sidecar has the
// code, too.
const (
	// CodeEnv has the Server's code.
	CodeEnv = "API_SERVER_CODE"
	// URLEnv has the address of the REST API.
	URLEnv = "API_SERVER_URL"
)

// CodeHeader has the code, in a game's call and in the REST API's to the sidecar.
const CodeHeader = "X-API-Server-Code"

// Paths of the sidecar. A sidecar without this API has none of them.
const (
	// CheckPath answers whether the code is right (GET).
	CheckPath = "/v1/game"
	// PlayersPath takes Players (POST).
	PlayersPath = "/v1/game/players"
	// StatePath takes State (POST).
	StatePath = "/v1/game/state"
	// HealthPath takes Health (POST).
	HealthPath = "/v1/game/health"
	// DeletionPath takes Deletion (POST).
	DeletionPath = "/v1/game/deletion"
)

// MaxBodyBytes bounds a call's body, at the REST API and at the sidecar.
const MaxBodyBytes = 4 << 10

// MaxCodeBytes bounds a code: it has a namespace and a Server's name of at most 63 bytes each.
const MaxCodeBytes = 256

// Players is how many play.
type Players struct {
	// Count is from 0 to a million, and at most the capacity where that is known.
	Count *int64 `json:"playerCount"`
}

// State is what the game does.
type State struct {
	// State is one of States, in any case.
	State string `json:"state"`
}

// Health is whether the game is well.
type Health struct {
	// Health is one of Healths, in any case.
	Health string `json:"health"`
}

// Deletion is whether the game's Server is to go once nobody plays.
type Deletion struct {
	// Marked is whether it is.
	Marked *bool `json:"markedForDeletion"`
}

// States that a game may be in.
const (
	Idle      = "Idle"
	Assigned  = "Assigned"
	Running   = "Running"
	PostMatch = "PostMatch"
)

// States are all of them.
var States = []string{Idle, Assigned, Running, PostMatch}

// Healths that a game may have.
const (
	Creating = "Creating"
	Healthy  = "Healthy"
	Failed   = "Failed"
)

// Healths are all of them.
var Healths = []string{Creating, Healthy, Failed}

// Word finds a word, in any case, among those that there are.
func Word(said string, among []string) (string, bool) {
	i := slices.IndexFunc(among, func(w string) bool { return strings.EqualFold(w, said) })
	if i < 0 {
		return "", false
	}
	return among[i], true
}

// SecretKey is where the code is in a Server's Secret.
const SecretKey = "code"

// SecretName is the name of a Server's Secret with its code. A later Server of the name has another
// one: the code of the one before isn't good for it.
func SecretName(server string, uid types.UID) string {
	return server + "-game-api-" + string(uid[:min(len(uid), 8)])
}

// secretBytes is how much of a code is by chance.
const secretBytes = 32

var encoding = base64.RawURLEncoding

// NewCode makes a code for a Server: 32 bytes by chance, and then whose it is. It can stand in a URL as
// it is.
func NewCode(namespace, server string) string {
	var secret [secretBytes]byte
	_, _ = rand.Read(secret[:]) // it never fails
	return encoding.EncodeToString(secret[:]) + "." + encoding.EncodeToString([]byte(namespace+"/"+server))
}

// Server is whose a code says that it is, which only that Server's sidecar can confirm.
func Server(code string) (namespace, name string, ok bool) {
	if len(code) > MaxCodeBytes {
		return "", "", false
	}
	secret, whose, ok := strings.Cut(code, ".")
	if raw, err := encoding.DecodeString(secret); !ok || err != nil || len(raw) != secretBytes {
		return "", "", false
	}
	raw, err := encoding.DecodeString(whose)
	if err != nil {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(string(raw), "/")
	return namespace, name, ok && namespace != "" && name != ""
}

// Same compares two codes in a time that says nothing about either.
func Same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
