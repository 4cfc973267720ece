package sdk

import (
	"context"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// guard limits a panic to one call.
type guard struct {
	recovered func(value any, stack []byte)
}

func (g guard) unary(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (out any, err error) {
	defer g.recover(&err)
	return handle(ctx, in)
}

func (g guard) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer g.recover(&err)
	return handle(srv, stream)
}

func (g guard) recover(err *error) {
	if value := recover(); value != nil {
		if g.recovered != nil {
			g.recovered(value, debug.Stack())
		}
		*err = status.Error(codes.Internal, "something went wrong here; the log tells what")
	}
}
