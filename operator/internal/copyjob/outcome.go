package copyjob

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/operator/internal/text"
)

// Report is what the program says when it ends.
type Report struct {
	// Bytes and Files are how large the archive is, and how much is in it.
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
	// SHA256 is the archive's, in hexadecimal.
	SHA256 string `json:"sha256"`
	// Disks are the names of those that were copied.
	Disks []string `json:"disks"`
	// Changed is set where files changed while they were read.
	Changed bool `json:"changed"`
	// Between is set where it failed and may have left the disks half moved: a Job with the same --id goes on
	// from there. Programs of earlier versions don't say so.
	Between bool `json:"between"`
	// Error says what went wrong.
	Error string `json:"error"`
}

// Outcome is what became of a Job.
type Outcome struct {
	// Done is set once it has ended, and Failed if it didn't do what it was to.
	Done, Failed bool
	// Message says why it failed or, while it isn't done, what its Pod waits for; empty, where
	// that isn't known.
	Message string
	// Report is the program's, if it wrote one.
	Report Report
}

// maxSentence bounds what a program said, in characters.
const maxSentence = 300

// maxPods bounds how many of a Job's Pods are read. There are no more than its tries, and those
// whose node was drained.
const maxPods = 100

// Read reads what became of a Job.
func Read(ctx context.Context, live client.Reader, job *batchv1.Job) (Outcome, error) {
	complete, failed := ended(job)
	var pods corev1.PodList
	err := live.List(ctx, &pods, client.InNamespace(job.Namespace), client.Limit(maxPods),
		client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)})
	if err != nil {
		return Outcome{}, fmt.Errorf("list the Pods of Job %s: %w", client.ObjectKeyFromObject(job), err)
	}
	last := youngest(pods.Items)
	if !complete && failed == nil {
		return Outcome{Message: awaited(last)}, nil
	}
	o := Outcome{Done: true, Failed: failed != nil}
	said, readable := terminated(last), false
	if said != "" {
		readable = json.Unmarshal([]byte(said), &o.Report) == nil
	}
	switch {
	case !o.Failed && readable && o.Report.Error == "":
	case !o.Failed && !readable:
		o.Failed, o.Message = true, "The Pod has ended, and its report is lost."
	case readable && o.Report.Error != "":
		o.Failed, o.Message = true, sentence(o.Report.Error)
	case failed.Reason == batchv1.JobReasonDeadlineExceeded:
		o.Message = "It took longer than its timeout."
		if why := awaited(last); why != "" {
			o.Message += " " + why
		}
	case said != "":
		o.Message = sentence(said)
	default:
		o.Message = sentence(failed.Message)
	}
	return o, nil
}

// Ended reports whether a Job has succeeded or failed, and makes no other Pod.
func Ended(job *batchv1.Job) bool {
	complete, failed := ended(job)
	return complete || failed != nil
}

// ended tells whether a Job has succeeded, or the condition by which it has failed.
func ended(job *batchv1.Job) (complete bool, failed *batchv1.JobCondition) {
	for i := range job.Status.Conditions {
		switch c := &job.Status.Conditions[i]; {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			complete = true
		case c.Type == batchv1.JobFailed:
			failed = c
		}
	}
	return complete, failed
}

// youngest is the last one that was made; nil: there is none.
func youngest(pods []corev1.Pod) *corev1.Pod {
	var last *corev1.Pod
	for i := range pods {
		if last == nil || last.CreationTimestamp.Before(&pods[i].CreationTimestamp) {
			last = &pods[i]
		}
	}
	return last
}

// terminated is what a Pod's container said at its end.
func terminated(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			if t.Reason == "OOMKilled" {
				return "The Pod was killed because it used more memory than it may."
			}
			return strings.TrimSpace(t.Message)
		}
	}
	return ""
}

// awaited says what keeps a Pod from running; empty: nothing that is known.
func awaited(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "No node can take its Pod: " + sentence(c.Message)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Message != "" {
			return "Its Pod can't start: " + w.Reason + ": " + sentence(w.Message)
		}
	}
	return ""
}

// sentence is what a program said, which may quote names of files, as one bounded line.
func sentence(said string) string {
	said = text.UpperFirst(text.Plain(said, maxSentence))
	if said == "" || strings.HasSuffix(said, ".") {
		return said
	}
	return said + "."
}
