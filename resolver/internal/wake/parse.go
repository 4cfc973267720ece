package wake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
)

// maxSentence bounds how much of the operator's message gets into a log.
const maxSentence = 256

// parseAnswer reads the operator's answer.
func parseAnswer(status int, body []byte) Result {
	if status == http.StatusAccepted {
		var answer informerapi.WakeResponse
		if err := json.Unmarshal(body, &answer); err != nil {
			return Result{Outcome: Malformed, Err: fmt.Errorf("reading the operator's answer: %w", err)}
		}
		switch phase := v1alpha1.Phase(answer.Phase); phase {
		case v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking, v1alpha1.PhaseAwake, v1alpha1.PhaseFallingAsleep:
			result := Result{Outcome: Accepted, Phase: phase}
			if answer.LastSleepTime != nil {
				result.LastSleep = *answer.LastSleepTime
			}
			if answer.LastWakeTime != nil {
				result.LastWakeTime = *answer.LastWakeTime
			}
			return result
		default:
			return Result{Outcome: Malformed, Err: fmt.Errorf("reading the operator's answer: unknown phase %q", cut(answer.Phase))}
		}
	}
	outcome := Rejected
	switch status {
	case http.StatusNotFound:
		outcome = NotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		outcome = Unauthorized
	case http.StatusServiceUnavailable:
		outcome = Unavailable
	}
	var refusal informerapi.ErrorResponse
	_ = json.Unmarshal(body, &refusal) // a proxy's answer has no such body
	return Result{Outcome: outcome, Err: fmt.Errorf("the operator answered %d: %q", status, cut(refusal.Error))}
}

func cut(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxSentence {
		return text[:maxSentence] + "…"
	}
	return text
}
