package restapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dormouse.dev/dormouse/operator/internal/restapi/access"
	"dormouse.dev/dormouse/operator/internal/restapi/hosting"
)

// serverPath is that of one server. Each path may end with a slash, too.
const serverPath = "/api/v1/server/{id}"

// callTime bounds a call.
const callTime = 20 * time.Second

// done is the answer of a change.
type done struct {
	Status int `json:"-"`
	Body   struct {
		Success bool `json:"success" enum:"true" doc:"Always true."`
	}
}

func success(status int) *done {
	d := &done{Status: status}
	d.Body.Success = true
	return d
}

// ServerRef names a server. huma reads exported types only.
type ServerRef struct {
	ID int64 `path:"id" minimum:"1" maximum:"9007199254740991" doc:"The server's number."`
}

type createInput struct {
	ServerRef
	Body struct {
		RAM  int64  `json:"ram_gb" minimum:"1" maximum:"1024" doc:"Memory, in GiB: what the game's container requests, and its limit." example:"2"`
		Disk int64  `json:"disk_gb" minimum:"1" maximum:"65536" doc:"Disk, in GiB." example:"10"`
		Game string `json:"game,omitempty" required:"false" default:"minecraft" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" doc:"The game: the name of a GameType that an administrator offers."`
	}
}

type resizeInput struct {
	ServerRef
	Body struct {
		RAM  int64 `json:"ram_gb,omitempty" required:"false" minimum:"1" maximum:"1024" doc:"Memory, in GiB. It counts from the game's next start, which comes once nobody plays."`
		Disk int64 `json:"disk_gb,omitempty" required:"false" minimum:"1" maximum:"65536" doc:"Disk, in GiB. It only grows, where the StorageClass lets it."`
	}
}

type forceInput struct {
	ServerRef
	Force bool `query:"force" doc:"End the game at once, whoever plays."`
}

type deleteInput struct {
	ServerRef
	Force    bool `query:"force" doc:"End the game at once, whoever plays."`
	KeepDisk bool `query:"keep_disk" doc:"Keep the disk, for a later server of the same number."`
}

type portInput struct {
	ServerRef
	Role string `path:"port" enum:"primary,rcon,sftp" doc:"primary is the port that players use."`
}

type portOutput struct {
	Body struct {
		Success bool  `json:"success" enum:"true"`
		Port    int32 `json:"port" minimum:"1" maximum:"65535" doc:"The number by which the port is reached from outside. It stays the same as long as the server is there."`
	}
}

type keepAwakeInput struct {
	ServerRef
	Body struct {
		Minutes int64 `json:"minutes" minimum:"0" maximum:"43200" doc:"For how long from now, in minutes; 0: it may sleep again." example:"120"`
	}
}

type getOutput struct {
	Body struct {
		Success bool           `json:"success" enum:"true"`
		Server  hosting.Server `json:"server"`
	}
}

type listInput struct {
	Game  string `query:"game" maxLength:"63" doc:"Only servers of this game."`
	State string `query:"state" enum:"Pending,Starting,Ready,Allocated,Reserved,Draining,Stopped,Unhealthy,Asleep,Waking,Deleting" doc:"Only servers in this state."`
	After int64  `query:"after" minimum:"0" maximum:"9007199254740991" doc:"next of the page before; 0, the default, is the first page."`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many servers a page has at most."`
}

type listOutput struct {
	Body struct {
		Success bool             `json:"success" enum:"true"`
		Servers []hosting.Server `json:"servers" doc:"In the order of their numbers." nullable:"false"`
		Next    int64            `json:"next,omitempty" doc:"Ask for the next page with this as after; absent on the last one."`
	}
}

// servers answers calls about servers.
type servers struct {
	streams *streams
	hosting *hosting.Hosting
	access  *access.Reviewer
	metrics *Metrics
	now     func() time.Time
}

// may checks that the caller may do something to a server; id is 0 for all of them.
func (s *servers) may(ctx context.Context, verb string, id int64) error {
	return s.mayUser(ctx, caller(ctx), verb, id)
}

func (s *servers) mayUser(ctx context.Context, u *access.User, verb string, id int64) error {
	a := access.Action{Namespace: s.hosting.Namespace, Verb: verb, Resource: "servers"}
	// Kubernetes' roles never limit create to names.
	if id > 0 && verb != "create" {
		a.Name = hosting.Name(id)
	}
	return s.access.Check(ctx, u, a)
}

// change checks the right to change a server, changes it, and answers.
func (s *servers) change(ctx context.Context, verb string, id int64, do func(context.Context) error) (*done, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := s.may(ctx, verb, id); err != nil {
		return nil, answerTo(ctx, err)
	}
	if err := do(ctx); err != nil {
		return nil, answerTo(ctx, err)
	}
	return success(http.StatusOK), nil
}

func operation(method, path, id, summary string, statuses ...int) huma.Operation {
	return huma.Operation{
		Method: method, Path: path, OperationID: id, Summary: summary, MaxBodyBytes: maxBody,
		Security: []map[string][]string{{"bearer": {}}},
		Errors: append(statuses, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden,
			http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable),
	}
}

// withBody adds to an operation's statuses those of one that has a body.
func withBody(statuses ...int) []int {
	return append(statuses, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
}

func (s *servers) register(api huma.API) {
	huma.Register(api, operation(http.MethodGet, "/api/v1/server", "list-servers", "List servers"), s.list)
	create := operation(http.MethodPost, serverPath, "create-server", "Make a server, which is stopped until it is started",
		withBody(http.StatusConflict, http.StatusUnprocessableEntity)...)
	create.DefaultStatus = http.StatusCreated
	create.Responses = map[string]*huma.Response{"200": {Description: "It was there already, as it is asked for.", Content: map[string]*huma.MediaType{
		"application/json": {Schema: &huma.Schema{Ref: "#/components/schemas/DoneBody"}},
	}}}
	huma.Register(api, create, s.create)
	huma.Register(api, operation(http.MethodGet, serverPath, "get-server", "Read a server", http.StatusNotFound, http.StatusConflict), s.get)
	huma.Register(api, operation(http.MethodPatch, serverPath, "resize-server", "Change a server's memory and disk",
		withBody(http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity)...), s.resize)
	huma.Register(api, operation(http.MethodDelete, serverPath, "delete-server", "Delete a server once its players are gone", http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity), s.remove)
	huma.Register(api, operation(http.MethodPatch, serverPath+"/start", "start-server", "Start a server", http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity), s.start)
	huma.Register(api, operation(http.MethodPatch, serverPath+"/stop", "stop-server", "Stop a server once its players are gone", http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity), s.stop)
	huma.Register(api, operation(http.MethodPost, serverPath+"/wake", "wake-server", "Wake a server that sleeps", http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity), s.wake)
	huma.Register(api, operation(http.MethodPost, serverPath+"/keep-awake", "keep-server-awake", "Keep a server awake for a time",
		withBody(http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity)...), s.keepAwake)
	huma.Register(api, operation(http.MethodPatch, serverPath+"/port/{port}", "get-server-port", "Get the number by which a port is reached from outside",
		http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity), s.port)
}

func (s *servers) list(ctx context.Context, in *listInput) (*listOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := s.may(ctx, "list", 0); err != nil {
		return nil, answerTo(ctx, err)
	}
	page, more, err := s.hosting.List(ctx, hosting.Filter{Game: in.Game, State: in.State, After: in.After, Limit: in.Limit})
	if err != nil {
		return nil, answerTo(ctx, err)
	}
	out := &listOutput{}
	out.Body.Success, out.Body.Servers = true, page
	if more {
		out.Body.Next = page[len(page)-1].ID
	}
	return out, nil
}

func (s *servers) create(ctx context.Context, in *createInput) (*done, error) {
	created := false
	d, err := s.change(ctx, "create", in.ID, func(ctx context.Context) (err error) {
		created, err = s.hosting.Create(ctx, in.ID, hosting.Want{RAM: in.Body.RAM, Disk: in.Body.Disk, Game: in.Body.Game})
		return err
	})
	if err == nil && created {
		d.Status = http.StatusCreated
	}
	return d, err
}

func (s *servers) get(ctx context.Context, in *ServerRef) (*getOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := s.may(ctx, "get", in.ID); err != nil {
		return nil, answerTo(ctx, err)
	}
	server, err := s.hosting.Get(ctx, in.ID)
	if err != nil {
		return nil, answerTo(ctx, err)
	}
	out := &getOutput{}
	out.Body.Success, out.Body.Server = true, server
	return out, nil
}

func (s *servers) resize(ctx context.Context, in *resizeInput) (*done, error) {
	if in.Body.RAM == 0 && in.Body.Disk == 0 {
		return nil, fail(http.StatusBadRequest, "body", "Nothing is to be changed: give ram_gb, disk_gb or both.")
	}
	return s.change(ctx, "patch", in.ID, func(ctx context.Context) error {
		return s.hosting.Resize(ctx, in.ID, in.Body.RAM, in.Body.Disk)
	})
}

func (s *servers) remove(ctx context.Context, in *deleteInput) (*done, error) {
	return s.change(ctx, "delete", in.ID, func(ctx context.Context) error {
		return s.hosting.Delete(ctx, in.ID, in.KeepDisk, in.Force)
	})
}

func (s *servers) start(ctx context.Context, in *ServerRef) (*done, error) {
	return s.change(ctx, "patch", in.ID, func(ctx context.Context) error { return s.hosting.Start(ctx, in.ID) })
}

func (s *servers) stop(ctx context.Context, in *forceInput) (*done, error) {
	return s.change(ctx, "patch", in.ID, func(ctx context.Context) error { return s.hosting.Stop(ctx, in.ID, in.Force) })
}

func (s *servers) wake(ctx context.Context, in *ServerRef) (*done, error) {
	return s.change(ctx, "patch", in.ID, func(ctx context.Context) error { return s.hosting.Wake(ctx, in.ID) })
}

func (s *servers) keepAwake(ctx context.Context, in *keepAwakeInput) (*done, error) {
	return s.change(ctx, "patch", in.ID, func(ctx context.Context) error {
		return s.hosting.KeepAwake(ctx, in.ID, s.now().Add(time.Duration(in.Body.Minutes)*time.Minute))
	})
}

func (s *servers) port(ctx context.Context, in *portInput) (*portOutput, error) {
	out := &portOutput{}
	out.Body.Success = true
	_, err := s.change(ctx, "patch", in.ID, func(ctx context.Context) (err error) {
		out.Body.Port, err = s.hosting.Port(ctx, in.ID, in.Role)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
