package sdk

import (
	"context"
	"fmt"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"dormouse.dev/dormouse/sidecar/internal/sdk/alphapb"
	"dormouse.dev/dormouse/sidecar/internal/sdk/betapb"
	"dormouse.dev/dormouse/sidecar/internal/sdk/sdkpb"
)

// Gateway answers the SDK's REST calls through a connection to its gRPC server, until the
// context ends. Fields have their names from the .proto files and empty ones are left out, as
// clients of the REST API expect.
func Gateway(ctx context.Context, conn *grpc.ClientConn) (http.Handler, error) {
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.HTTPBodyMarshaler{
		Marshaler: &runtime.JSONPb{
			MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
		},
	}))
	for name, register := range map[string]func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		"stable": sdkpb.RegisterSDKHandler, "alpha": alphapb.RegisterSDKHandler, "beta": betapb.RegisterSDKHandler,
	} {
		if err := register(ctx, mux, conn); err != nil {
			return nil, fmt.Errorf("register the %s calls of the REST API: %w", name, err)
		}
	}
	return mux, nil
}
