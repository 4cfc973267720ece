package sdk

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/sdk/alphapb"
	"dormouse.dev/dormouse/sidecar/internal/sdk/betapb"
	"dormouse.dev/dormouse/sidecar/internal/sdk/sdkpb"
)

// MaxMessageBytes bounds a call's message: a full list with much room to spare.
const MaxMessageBytes = 256 << 10

// maxStreams bounds the calls under way on a connection.
const maxStreams = 128

// Server answers gRPC calls.
type Server struct {
	game   *game.Game
	health game.Health
	grpc   *grpc.Server
}

// New makes a server for a game. recovered is called with panics, which cost one call.
func New(g *game.Game, health game.Health, recovered func(value any, stack []byte)) *Server {
	guard := guard{recovered}
	s := &Server{game: g, health: health, grpc: grpc.NewServer(
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(10*time.Second),
		// Some clients ping often, and keep a connection without a call.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(guard.unary),
		grpc.ChainStreamInterceptor(guard.stream),
	)}
	sdkpb.RegisterSDKServer(s.grpc, stable{Server: s})
	alphapb.RegisterSDKServer(s.grpc, alpha{Server: s})
	betapb.RegisterSDKServer(s.grpc, beta{Server: s})
	return s
}

// GRPC is the gRPC server, for serving connections.
func (s *Server) GRPC() *grpc.Server { return s.grpc }

// restored waits for the state from before this sidecar started.
func (s *Server) restored(caller context.Context) (game.Snapshot, error) {
	snapshot, err := s.game.AwaitRestored(caller)
	if err != nil && caller.Err() != nil {
		return snapshot, status.FromContextError(caller.Err()).Err() // it didn't wait for that long
	}
	return snapshot, grpcError(err)
}

// codeOf maps the kinds of errors to gRPC's codes, as the SDK specifies them.
var codeOf = map[game.Kind]codes.Code{
	game.Invalid:       codes.InvalidArgument,
	game.OutOfRange:    codes.OutOfRange,
	game.NotFound:      codes.NotFound,
	game.AlreadyExists: codes.AlreadyExists,
	game.TooLate:       codes.FailedPrecondition,
	game.Unavailable:   codes.Unavailable,
}

// grpcError converts an error to a gRPC status.
func grpcError(err error) error {
	if err == nil {
		return nil
	}
	code, ok := codeOf[game.KindOf(err)]
	if !ok {
		code = codes.Internal
	}
	return status.Error(code, err.Error())
}

// stable is the service agones.dev.sdk.SDK.
type stable struct {
	sdkpb.UnimplementedSDKServer
	*Server
}

func (s stable) Ready(context.Context, *sdkpb.Empty) (*sdkpb.Empty, error) {
	s.game.Ready()
	return &sdkpb.Empty{}, nil
}

func (s stable) Allocate(context.Context, *sdkpb.Empty) (*sdkpb.Empty, error) {
	s.game.Allocate()
	return &sdkpb.Empty{}, nil
}

func (s stable) Shutdown(context.Context, *sdkpb.Empty) (*sdkpb.Empty, error) {
	s.game.Shutdown()
	return &sdkpb.Empty{}, nil
}

func (s stable) Reserve(_ context.Context, in *sdkpb.Duration) (*sdkpb.Empty, error) {
	// A time that doesn't fit a time.Duration is for ever in practice.
	s.game.Reserve(time.Duration(min(in.GetSeconds(), int64(365*24*time.Hour/time.Second))) * time.Second)
	return &sdkpb.Empty{}, nil
}

func (s stable) Health(stream grpc.ClientStreamingServer[sdkpb.Empty, sdkpb.Empty]) error {
	for {
		_, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return stream.SendAndClose(&sdkpb.Empty{})
		case err != nil:
			return err
		}
		s.game.Ping()
	}
}

func (s stable) GetGameServer(ctx context.Context, _ *sdkpb.Empty) (*sdkpb.GameServer, error) {
	snapshot, err := s.restored(ctx)
	if err != nil {
		return nil, err
	}
	return s.gameServer(snapshot), nil
}

func (s stable) WatchGameServer(_ *sdkpb.Empty, stream grpc.ServerStreamingServer[sdkpb.GameServer]) error {
	var last *sdkpb.GameServer
	for {
		snapshot, changed := s.game.Watch()
		if now := s.gameServer(snapshot); snapshot.Restored && !proto.Equal(last, now) {
			if err := stream.Send(now); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}

func (s stable) SetLabel(_ context.Context, in *sdkpb.KeyValue) (*sdkpb.Empty, error) {
	return &sdkpb.Empty{}, grpcError(s.game.SetLabel(in.GetKey(), in.GetValue()))
}

func (s stable) SetAnnotation(_ context.Context, in *sdkpb.KeyValue) (*sdkpb.Empty, error) {
	return &sdkpb.Empty{}, grpcError(s.game.SetAnnotation(in.GetKey(), in.GetValue()))
}
