package options

import (
	"errors"
	"fmt"
)

// parsePorts reads a range of host ports such as "7000-8000".
func parsePorts(text string) (low, high int32, err error) {
	if _, err := fmt.Sscanf(text, "%d-%d", &low, &high); err != nil || fmt.Sprintf("%d-%d", low, high) != text {
		return 0, 0, errors.New("it must be two numbers such as 7000-8000")
	}
	switch {
	case low < 1 || high > 65535 || low > high:
		return 0, 0, errors.New("the numbers must be from 1 to 65535, the smaller one first")
	case low <= maxNodePort && high >= minNodePort:
		return 0, 0, fmt.Errorf("it must not reach into the NodePorts, %d to %d", minNodePort, maxNodePort)
	}
	return low, high, nil
}

// Kubernetes' default range of NodePorts.
const (
	minNodePort = 30000
	maxNodePort = 32767
)
