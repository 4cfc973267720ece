// Package reasons names why conditions of Dormouse's kinds are as they are. A condition's
// message says the same of the object at hand, in a sentence.
package reasons
