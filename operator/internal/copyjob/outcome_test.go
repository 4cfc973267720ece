package copyjob

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// jobPod is a Pod of the job u1.
func jobPod(name string, made int64, state corev1.ContainerState, conditions ...corev1.PodCondition) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(made, 0)),
			Labels: map[string]string{batchv1.ControllerUidLabel: "u1"},
		},
		Status: corev1.PodStatus{Conditions: conditions, ContainerStatuses: []corev1.ContainerStatus{{Name: "dormouse-sidecar", State: state}}},
	}
}

func said(words string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: words}}
}

func TestAnOutcomeIsReadFromTheLastPod(t *testing.T) {
	complete := batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}
	failed := func(reason, message string) batchv1.JobCondition {
		return batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	const good = `{"bytes":7,"files":3,"sha256":"ab","disks":["world"]}`
	unscheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}
	for name, c := range map[string]struct {
		conditions   []batchv1.JobCondition
		pods         []client.Object
		done, failed bool
		message      string
		bytes        int64
	}{
		"no Pod yet":  {},
		"a Pod runs":  {pods: []client.Object{jobPod("a", 1, corev1.ContainerState{})}},
		"no node":     {pods: []client.Object{jobPod("a", 1, corev1.ContainerState{}, unscheduled)}, message: "No node can take its Pod: 0/3 nodes are available."},
		"can't start": {pods: []client.Object{jobPod("a", 1, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "keys" not found`}})}, message: `Its Pod can't start: CreateContainerConfigError: Secret "keys" not found.`},
		"one that is good after one that wasn't": {
			conditions: []batchv1.JobCondition{complete}, pods: []client.Object{jobPod("a", 2, said(good)), jobPod("b", 1, said(`{"error":"refused"}`))}, done: true, bytes: 7,
		},
		"a report of an error":   {conditions: []batchv1.JobCondition{failed("BackoffLimitExceeded", "limit")}, pods: []client.Object{jobPod("a", 1, said(`{"error":"open world: no such file"}`))}, done: true, failed: true, message: "Open world: no such file."},
		"no report":              {conditions: []batchv1.JobCondition{failed("BackoffLimitExceeded", "The limit is reached")}, done: true, failed: true, message: "The limit is reached."},
		"words and no report":    {conditions: []batchv1.JobCondition{failed("BackoffLimitExceeded", "x")}, pods: []client.Object{jobPod("a", 1, said("panic:\n\tnil\u202e"))}, done: true, failed: true, message: "Panic: nil."},
		"a report that is lost":  {conditions: []batchv1.JobCondition{complete}, done: true, failed: true, message: "The Pod has ended, and its report is lost."},
		"too long, with no node": {conditions: []batchv1.JobCondition{failed("DeadlineExceeded", "x")}, pods: []client.Object{jobPod("a", 1, corev1.ContainerState{}, unscheduled)}, done: true, failed: true, message: "It took longer than its timeout. No node can take its Pod: 0/3 nodes are available."},
		"too much memory":        {conditions: []batchv1.JobCondition{failed("BackoffLimitExceeded", "x")}, pods: []client.Object{jobPod("a", 1, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled"}})}, done: true, failed: true, message: "The Pod was killed because it used more memory than it may."},
		"a stranger's Pod":       {conditions: []batchv1.JobCondition{failed("BackoffLimitExceeded", "x")}, pods: []client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "a", Labels: map[string]string{batchv1.ControllerUidLabel: "u1"}}}}, done: true, failed: true, message: "X."},
	} {
		live := fake.NewClientBuilder().WithObjects(c.pods...).Build()
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "backup-one", UID: "u1"}, Status: batchv1.JobStatus{Conditions: c.conditions}}
		got, err := Read(t.Context(), live, job)
		if err != nil || got.Done != c.done || got.Failed != c.failed || got.Message != c.message || got.Report.Bytes != c.bytes {
			t.Errorf("%s: %+v, %v; want done %t, failed %t, %q, %d bytes", name, got, err, c.done, c.failed, c.message, c.bytes)
		}
	}
}
