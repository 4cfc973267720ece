package service

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/resolver/internal/route"
)

// Clients of one service that don't read leave room for what other services' clients have yet to take.
func TestOneServicesStalledClientsLeaveRoomForOthers(t *testing.T) {
	shared := NewShared(Options{MaxHeldBytes: 1 << 20})
	services := map[types.UID]*Service{}
	for _, uid := range []types.UID{"one", "other"} {
		services[uid] = New(shared, &route.Route{UID: uid, Name: string(uid)}, &Activity{})
	}
	const each = 1 << 10
	took := 0
	for services["one"].Stalled.All(each) {
		took += each
	}
	if !services["other"].Stalled.All(each) {
		t.Error("there is nothing left for another service")
	}
	services["one"].Stalled.Give(took)
	services["other"].Stalled.Give(each)
	if used := shared.Usage(); used.StalledBytes != 0 || used.HeldBytes != 0 {
		t.Errorf("in the end %d and %d bytes are used", used.StalledBytes, used.HeldBytes)
	}
}
