package elasticservice_test

import "time"

// Times that are waited at most.
const (
	// promptly is for what the operator does by itself at once. It is long
	// because machines that build are slow, not because the operator is.
	promptly = 15 * time.Second
	// afterSettling is for a sleep: the triggers are read, and five seconds are
	// kube-proxy's.
	afterSettling = 30 * time.Second
	// afterLingering is for a resolver's endpoint that stays for ten seconds
	// after its last client.
	afterLingering = 30 * time.Second
	// afterCopies is how long no Service without a selector sleeps after it was made: Kubernetes
	// may copy Endpoints meanwhile.
	afterCopies = 11 * time.Second
	// afterElection is for a new leader: the last one's lease ends after 15 s.
	afterElection = 40 * time.Second
	// afterCollection is for the deletion of a hundred objects by one call.
	afterCollection = time.Minute
)
