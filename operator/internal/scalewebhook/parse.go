package scalewebhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"dormouse.dev/dormouse/operator/internal/text"
)

// MaxReplicas is the most that an answer may ask for: as many as any object may have. A number above is a
// webhook's mistake, and following it as far as an autoscaler's maximum would be wrong, so
// that it is an error. Between the two the autoscaler's own bounds decide.
const MaxReplicas = 10000

// Answer is what a webhook wants.
type Answer struct {
	// Scale is false where the webhook wants no change. Replicas is then 0 and means nothing.
	Scale bool
	// Replicas is how many there are to be, from 0 to MaxReplicas.
	Replicas int32
}

type dormouseAnswer struct {
	Scale    *bool           `json:"scale"`
	Replicas json.RawMessage `json:"desired_replicas"`
}

type agonesAnswer struct {
	Response *struct {
		UID      string          `json:"uid"`
		Scale    *bool           `json:"scale"`
		Replicas json.RawMessage `json:"replicas"`
	} `json:"response"`
}

// parse reads an answer's body. Fields without a meaning here are ignored, names are those of
// encoding/json, upper or lower case, as with Agones. Fields that have a meaning must be
// there, null being as good as missing, and of their type: 3.0 and "3" are no whole numbers.
// Without scale the number need not be there and may be any.
//
// Agones' uid must be the question's. Agones itself never looks, so one that is missing is
// accepted: the answer is on the question's own connection.
func parse(format Format, body []byte, uid string) (Answer, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return Answer{}, failure(BadAnswer, "The answer is empty: it must be a JSON object")
	}
	if format == FormatAgones {
		return parseAgones(body, uid)
	}
	var answer dormouseAnswer
	if err := decode(body, &answer); err != nil {
		return Answer{}, err
	}
	return wish(answer.Scale, answer.Replicas, "scale", "desired_replicas")
}

func parseAgones(body []byte, uid string) (Answer, error) {
	var answer agonesAnswer
	if err := decode(body, &answer); err != nil {
		return Answer{}, err
	}
	response := answer.Response
	if response == nil {
		return Answer{}, failure(BadAnswer, "The answer has no response: a FleetAutoscaleReview with response.uid, response.scale and response.replicas is asked for")
	}
	if response.UID != "" && response.UID != uid {
		return Answer{}, failure(BadAnswer, "The answer's response.uid is %s and not that of the request: it must be copied from request.uid",
			strconv.Quote(text.Plain(response.UID, maxQuoted)))
	}
	return wish(response.Scale, response.Replicas, "response.scale", "response.replicas")
}

// wish makes an answer of its two fields, whose names are for errors.
func wish(scale *bool, replicas json.RawMessage, scaleField, replicasField string) (Answer, error) {
	if scale == nil {
		return Answer{}, failure(BadAnswer, "The answer has no %s: it must be true or false", scaleField)
	}
	missing := len(replicas) == 0 || string(replicas) == "null"
	if !missing && !isNumber(replicas) {
		return Answer{}, failure(BadAnswer, "The answer's %s is %s and no number", replicasField, text.Plain(string(replicas), maxQuoted))
	}
	if !*scale {
		return Answer{}, nil
	}
	if missing {
		return Answer{}, failure(BadAnswer, "The answer has %s true and no %s", scaleField, replicasField)
	}
	number, err := strconv.ParseInt(string(replicas), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		number = MaxReplicas + 1
		if replicas[0] == '-' {
			number = -1
		}
	case err != nil:
		return Answer{}, failure(BadAnswer, "The answer's %s is %s: it must be a whole number, without fraction or exponent",
			replicasField, text.Plain(string(replicas), maxQuoted))
	}
	if number < 0 || number > MaxReplicas {
		return Answer{}, failure(BadAnswer, "The answer's %s is %s: it must be from 0 to %d",
			replicasField, text.Plain(string(replicas), maxQuoted), MaxReplicas)
	}
	return Answer{Scale: true, Replicas: int32(number)}, nil
}

// isNumber reports whether a JSON value, which is well-formed, is a number.
func isNumber(value json.RawMessage) bool {
	return value[0] == '-' || value[0] >= '0' && value[0] <= '9'
}

// decode reads a body that must be one JSON object and nothing else.
func decode(body []byte, into any) error {
	// A JSON null would be an answer without fields, and a word of no sense to people.
	if first := bytes.TrimLeft(body, " \t\r\n"); len(first) > 0 && first[0] != '{' {
		return failure(BadAnswer, "The answer is no JSON object: it begins with %s", strconv.Quote(text.Plain(string(body), maxQuoted)))
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(into); err != nil {
		return undecoded(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return failure(BadAnswer, "The answer has something after its JSON object: it must be that object alone")
	}
	return nil
}

func undecoded(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return failure(BadAnswer, "The answer's %s has the wrong type: it is a %s",
			text.Plain(wrong.Field, maxQuoted), text.Plain(wrong.Value, maxQuoted))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return failure(BadAnswer, "The answer ends within its JSON object")
	}
	return failure(BadAnswer, "The answer is no JSON: %s", text.Plain(err.Error(), maxInner))
}
