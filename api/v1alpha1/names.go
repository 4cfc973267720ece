package v1alpha1

// Names that appear on objects in a user's cluster. They are part of the API:
// changing one breaks running clusters.
const (
	// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by
	// on each EndpointSlice that Dormouse writes. Kubernetes' own controllers
	// leave such slices alone.
	ManagedBy = "dormouse.dev"

	// PrivateServiceLabel marks the headless Service that Dormouse keeps beside
	// a user's Service to learn the addresses of its pods. Kubernetes copies the
	// label to that Service's EndpointSlices. Its value is the name of the
	// user's Service.
	PrivateServiceLabel = "dormouse.dev/private-service"

	// ElasticServiceFinalizer keeps a deleted ElasticService until its Service
	// and workload work without Dormouse.
	ElasticServiceFinalizer = "dormouse.dev/elastic-service"

	// TokenAudience is the audience of the service account tokens with which
	// Dormouse's programs know each other.
	TokenAudience = "dormouse.dev"
)

// Bounds of the ports on which resolvers listen for sleeping services. Each
// service port gets a resolver port of its own, which is how one resolver pod
// stands in for thousands of raw TCP and UDP services.
const (
	MinResolverPort = 10000
	MaxResolverPort = 29999
)
