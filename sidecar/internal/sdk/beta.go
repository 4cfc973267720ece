package sdk

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/sdk/betapb"
)

// beta is the service agones.dev.sdk.beta.SDK.
type beta struct {
	betapb.UnimplementedSDKServer
	*Server
}

func counter(name string, c v1alpha1.Counter, err error) (*betapb.Counter, error) {
	return &betapb.Counter{Name: name, Count: c.Count, Capacity: c.Capacity}, grpcError(err)
}

func list(name string, l v1alpha1.List, err error) (*betapb.List, error) {
	return &betapb.List{Name: name, Capacity: l.Capacity, Values: l.Values}, grpcError(err)
}

func (s beta) GetCounter(ctx context.Context, in *betapb.GetCounterRequest) (*betapb.Counter, error) {
	if _, err := s.restored(ctx); err != nil {
		return nil, err
	}
	c, err := s.game.Counter(in.GetName())
	return counter(in.GetName(), c, err)
}

func (s beta) UpdateCounter(ctx context.Context, in *betapb.UpdateCounterRequest) (*betapb.Counter, error) {
	if _, err := s.restored(ctx); err != nil {
		return nil, err
	}
	wanted := in.GetCounterUpdateRequest()
	update := game.CounterUpdate{Capacity: number(wanted.GetCapacity()), Count: number(wanted.GetCount()), Add: wanted.GetCountDiff()}
	if update == (game.CounterUpdate{}) {
		return nil, status.Error(codes.InvalidArgument, "the update must set count or capacity, or have a countDiff other than 0")
	}
	c, err := s.game.UpdateCounter(wanted.GetName(), update)
	return counter(wanted.GetName(), c, err)
}

func number(v *wrapperspb.Int64Value) *int64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

func (s beta) GetList(ctx context.Context, in *betapb.GetListRequest) (*betapb.List, error) {
	if _, err := s.restored(ctx); err != nil {
		return nil, err
	}
	l, err := s.game.List(in.GetName())
	return list(in.GetName(), l, err)
}

// UpdateList updates the fields in the mask. Without a mask, or with an empty one, as the
// client for Node.js sends it, it updates the fields that are set.
func (s beta) UpdateList(ctx context.Context, in *betapb.UpdateListRequest) (*betapb.List, error) {
	if _, err := s.restored(ctx); err != nil {
		return nil, err
	}
	wanted, paths := in.GetList(), in.GetUpdateMask().GetPaths()
	if len(paths) == 0 {
		if wanted.GetCapacity() != 0 {
			paths = append(paths, "capacity")
		}
		if len(wanted.GetValues()) > 0 {
			paths = append(paths, "values")
		}
	}
	var capacity *int64
	var values []string
	for _, path := range paths {
		switch path {
		case "capacity":
			capacity = new(wanted.GetCapacity())
		case "values":
			values = append([]string{}, wanted.GetValues()...)
		case "name":
			// A REST client may send it twice. It names the list and can't change.
		default:
			return nil, status.Errorf(codes.InvalidArgument, "a list has no field %q to update; it has capacity and values", path)
		}
	}
	if capacity == nil && values == nil {
		return nil, status.Error(codes.InvalidArgument, "the update must name capacity, values or both in updateMask")
	}
	l, err := s.game.UpdateList(wanted.GetName(), capacity, values)
	return list(wanted.GetName(), l, err)
}

func (s beta) AddListValue(ctx context.Context, in *betapb.AddListValueRequest) (*betapb.List, error) {
	if _, err := s.restored(ctx); err != nil {
		return nil, err
	}
	l, err := s.game.AddListValue(in.GetName(), in.GetValue())
	return list(in.GetName(), l, err)
}

func (s beta) RemoveListValue(ctx context.Context, in *betapb.RemoveListValueRequest) (*betapb.List, error) {
	if _, err := s.restored(ctx); err != nil {
		return nil, err
	}
	l, err := s.game.RemoveListValue(in.GetName(), in.GetValue())
	return list(in.GetName(), l, err)
}
