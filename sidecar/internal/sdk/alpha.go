package sdk

import (
	"context"
	"slices"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/sidecar/internal/sdk/alphapb"
)

// alpha is the service agones.dev.sdk.alpha.SDK.
type alpha struct {
	alphapb.UnimplementedSDKServer
	*Server
}

// players is who plays now.
func (s alpha) players(ctx context.Context) (v1alpha1.PlayersStatus, error) {
	snapshot, err := s.restored(ctx)
	if err != nil {
		return v1alpha1.PlayersStatus{}, err
	}
	if snapshot.Game.Players == nil {
		return v1alpha1.PlayersStatus{Capacity: snapshot.Capacity}, nil
	}
	return *snapshot.Game.Players, nil
}

func (s alpha) PlayerConnect(_ context.Context, in *alphapb.PlayerID) (*alphapb.Bool, error) {
	added, err := s.game.PlayerConnect(in.GetPlayerID())
	return &alphapb.Bool{Bool: added}, grpcError(err)
}

func (s alpha) PlayerDisconnect(_ context.Context, in *alphapb.PlayerID) (*alphapb.Bool, error) {
	removed, err := s.game.PlayerDisconnect(in.GetPlayerID())
	return &alphapb.Bool{Bool: removed}, grpcError(err)
}

func (s alpha) SetPlayerCapacity(_ context.Context, in *alphapb.Count) (*alphapb.Empty, error) {
	return &alphapb.Empty{}, grpcError(s.game.SetPlayerCapacity(in.GetCount()))
}

func (s alpha) GetPlayerCapacity(ctx context.Context, _ *alphapb.Empty) (*alphapb.Count, error) {
	players, err := s.players(ctx)
	return &alphapb.Count{Count: int64(players.Capacity)}, err
}

func (s alpha) GetPlayerCount(ctx context.Context, _ *alphapb.Empty) (*alphapb.Count, error) {
	players, err := s.players(ctx)
	return &alphapb.Count{Count: int64(players.Current)}, err
}

func (s alpha) IsPlayerConnected(ctx context.Context, in *alphapb.PlayerID) (*alphapb.Bool, error) {
	players, err := s.players(ctx)
	return &alphapb.Bool{Bool: slices.Contains(players.IDs, in.GetPlayerID())}, err
}

func (s alpha) GetConnectedPlayers(ctx context.Context, _ *alphapb.Empty) (*alphapb.PlayerIDList, error) {
	players, err := s.players(ctx)
	return &alphapb.PlayerIDList{List: players.IDs}, err
}
