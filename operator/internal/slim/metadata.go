package slim

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	seed    = maphash.MakeSeed()
	yes, no = new(true), new(false)
)

// metadata drops who wrote which field, and shares the rest.
func metadata(o *metav1.ObjectMeta) {
	o.ManagedFields = nil
	o.Namespace, o.GenerateName = String(o.Namespace), within(o.Name, o.GenerateName)
	o.Labels = labels(o.Name, o.Labels)
	// A list of objects comes here twice, and what it has then is in the cache already.
	o.OwnerReferences = slices.Clone(o.OwnerReferences)
	for i := range o.OwnerReferences {
		by := &o.OwnerReferences[i]
		by.APIVersion, by.Kind = word(by.APIVersion), word(by.Kind)
		by.Controller, by.BlockOwnerDeletion = flag(by.Controller), flag(by.BlockOwnerDeletion)
		by.Name = within(o.Name, by.Name)
	}
}

// kind shares the words of an object's kind, which each object of a list has.
func kind(of metav1.TypeMeta) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: word(of.Kind), APIVersion: word(of.APIVersion)}
}

// flag is a pointer to an equal value, of which there are two.
func flag(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return yes
	}
	return no
}

// labels shares the strings of an object's labels, but for those that are of this object alone.
func labels(name string, of map[string]string) map[string]string {
	if len(of) == 0 {
		return nil
	}
	shared := make(map[string]string, len(of))
	for key, value := range of {
		if strings.Contains(value, name) || strings.Contains(name, value) {
			value = within(name, value)
		} else {
			value = String(value)
		}
		shared[String(key)] = value
	}
	return shared
}

// sizeOf is how many bytes annotations have.
func sizeOf(annotations map[string]string) (size int) {
	for key, value := range annotations {
		size += len(key) + len(value)
	}
	return size
}

// equal are equal labels or annotations that another object has.
func equal(of map[string]string) map[string]string {
	var sum uint64 // in any order
	size := sizeOf(of)
	if size == 0 || size > maxShared {
		return of
	}
	for key, value := range of {
		sum += maphash.String(seed, key+"="+value)
	}
	return notes.One(strconv.FormatUint(sum, 36), of)
}

// finalizers are equal ones that another object has.
func finalizers(of []string) []string {
	if len(of) == 0 {
		return nil
	}
	return lists.One(strings.Join(of, ","), of)
}

// conditions are equal ones that another object has, with words that are shared: what was made within one
// second, and has been left alone since, has the same.
func conditions(list []metav1.Condition) []metav1.Condition {
	size := 0
	return sharedList(&states, list, func(c *metav1.Condition, hash *maphash.Hash) bool {
		c.Type, c.Status, c.Reason = word(c.Type), word(c.Status), word(c.Reason)
		if len(c.Message) <= maxShared {
			c.Message = texts.One(c.Message, c.Message)
		}
		size += len(c.Message)
		maphash.WriteComparable(hash, condition{c.Type, c.Reason, c.Message, c.Status, c.ObservedGeneration, c.LastTransitionTime.Unix()})
		return size <= maxShared
	})
}

// sharedList is an equal list that another object has. prepare shares an element's words, hashes what distinguishes
// it, and reports whether a list with it may be shared.
func sharedList[T any](pool *Pool[[]T], list []T, prepare func(*T, *maphash.Hash) bool) []T {
	if len(list) == 0 {
		return list
	}
	// What it is may be in the cache already. No more room than it needs: it is kept.
	list = append(make([]T, 0, len(list)), list...)
	var hash maphash.Hash
	hash.SetSeed(seed)
	may := true
	for i := range list {
		may = prepare(&list[i], &hash) && may
	}
	if !may {
		return list
	}
	return pool.One(strconv.FormatUint(hash.Sum64(), 36), list)
}

// condition is what distinguishes a condition.
type condition struct {
	kind, reason, message string
	status                metav1.ConditionStatus
	generation, at        int64
}
