package disks

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// shortName is how long the names of volumes and of Jobs, and the values of labels, may be.
const shortName = 63

// ShortName is a name of at most 63 characters for one that may be longer: itself, or its beginning with a hash
// of all.
func ShortName(name string) string {
	if len(name) <= shortName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:5])
	return strings.TrimRight(name[:shortName-len(hash)-1], "-.") + "-" + hash
}
