package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/reportapi"
)

const (
	// maxConnections is one for the report that is held, and one for a newer one.
	maxConnections = 2
	// dialTimeout bounds how long a connection takes.
	dialTimeout = 3 * time.Second
	// slack is how long an answer may take beyond the time for which it is held.
	slack = 5 * time.Second
	// maxRefusal bounds what is read of an answer that isn't 200.
	maxRefusal = 4 << 10
)

// refusal is an answer other than 200, with the operator's message.
type refusal struct {
	status   int
	sentence string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the operator answered %d: %s", r.status, r.sentence)
}

// Token shows who reports.
type Token interface {
	// Get returns a token that is valid now.
	Get() (string, error)
}

// client sends reports.
type client struct {
	url   string
	token Token
	http  *http.Client
	// patience bounds a report and its answer, and renewal one that says nothing new.
	patience, renewal time.Duration
}

func newClient(operator string, token Token) (*client, error) {
	u, err := url.Parse(operator)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("reading the operator's address: %q is not like http://host:port", operator)
	}
	return &client{
		url:   strings.TrimSuffix(operator, "/") + reportapi.ReportPath,
		token: token, patience: reportapi.HoldTime + slack, renewal: reportapi.RenewalTime + slack,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
				TLSHandshakeTimeout: dialTimeout,
				MaxConnsPerHost:     maxConnections, MaxIdleConnsPerHost: maxConnections,
				IdleConnTimeout:    time.Minute,
				DisableCompression: true,
			},
			// A redirect would send the token elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// send sends a report and waits for the answer. deniedSince is for reportapi.DeniedSinceHeader; 0:
// the report allows the deletion. One that renews says what the one before said, which was answered:
// nobody waits for it, and it may be held for longer. Parted: the operator's replica closed the connection that it
// had, beside its answer or without one.
func (c *client) send(ctx context.Context, report reportapi.Report, deniedSince uint64, renews bool) (answer reportapi.Answer, parted bool, err error) {
	patience := c.patience
	if renews {
		patience = c.renewal
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	token, err := c.token.Get()
	if err != nil {
		return answer, false, err
	}
	body, err := json.Marshal(report)
	if err != nil {
		return answer, false, fmt.Errorf("writing the report: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return answer, false, fmt.Errorf("making the report: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	if renews {
		request.Header.Set(reportapi.HoldHeader, strconv.Itoa(int(reportapi.RenewalTime.Seconds())))
	}
	if report.Memory != nil {
		memory, err := json.Marshal(report.Memory)
		if err != nil {
			return answer, false, fmt.Errorf("writing the report's memory: %w", err)
		}
		request.Header.Set(reportapi.MemoryHeader, string(memory))
	}
	if deniedSince > 0 {
		request.Header.Set(reportapi.DeniedSinceHeader, strconv.FormatUint(deniedSince, 10))
	}
	response, err := c.http.Do(request)
	if err != nil {
		var network *net.OpError
		dialed := !errors.As(err, &network) || network.Op != "dial"
		return answer, dialed && ctx.Err() == nil, fmt.Errorf("sending the report: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return answer, false, refused(response)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, reportapi.MaxReportBytes+1))
	if err == nil && len(raw) > reportapi.MaxReportBytes {
		err = fmt.Errorf("it has more than %d bytes", reportapi.MaxReportBytes)
	}
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	if err == nil && answer.Version == "" {
		err = errors.New("it has no version")
	}
	if err != nil {
		return reportapi.Answer{}, false, fmt.Errorf("reading the operator's answer: %w", err)
	}
	return answer, response.Close, nil
}

func refused(response *http.Response) error {
	out := &refusal{status: response.StatusCode, sentence: http.StatusText(response.StatusCode)}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	var body informerapi.ErrorResponse
	if err == nil && json.Unmarshal(raw, &body) == nil && body.Error != "" {
		out.sentence = body.Error
	}
	return out
}
