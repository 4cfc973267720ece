package scalewebhook

const (
	// maxMessage bounds a message, in characters.
	maxMessage = 600
	// maxQuoted bounds what is quoted of an answer, in characters.
	maxQuoted = 200
	// maxInner bounds what is quoted of other packages' errors, in characters. They may quote
	// the webhook in their turn.
	maxInner = 200
)
