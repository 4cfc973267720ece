package serverbuilder

import (
	"hash/fnv"
	"strconv"

	"k8s.io/apimachinery/pkg/util/rand"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// suffixLength is how many characters a Server's name has beyond its Fleet's.
const suffixLength = 5

// RandomName is a name for a Server. With Kubernetes' generateName the name would be known only
// from the answer.
func RandomName(f *v1alpha1.Fleet) string { return f.Name + "-" + rand.String(suffixLength) }

// FirstName is the name of one of the first Servers of a Fleet's generation that begins without
// any.
func FirstName(f *v1alpha1.Fleet, i int32) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789" // no vowels, no words
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(string(f.UID) + "/" + strconv.FormatInt(f.Generation, 10) + "/" + strconv.Itoa(int(i)))) // a hash accepts any input
	sum := hash.Sum64()
	suffix := make([]byte, suffixLength)
	for at := range suffix {
		suffix[at] = letters[sum%uint64(len(letters))]
		sum /= uint64(len(letters))
	}
	return f.Name + "-" + string(suffix)
}
