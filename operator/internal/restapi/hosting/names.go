package hosting

import (
	"strconv"
	"strings"
)

// MaxID is the largest number of a server.
const MaxID = 1<<53 - 1

// prefix is what the names of hosted servers begin with.
const prefix = "server-"

// Name is the name of all objects of a server.
func Name(id int64) string { return prefix + strconv.FormatInt(id, 10) }

// ID is the number of the server whose objects have this name; false if it is none's.
func ID(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || id < 1 || id > MaxID || Name(id) != name {
		return 0, false
	}
	return id, true
}
