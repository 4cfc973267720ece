package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// countCrash reports whether this start is one of the first ones, which crash,
// and counts it in file.
func countCrash(file string, first int) (bool, error) {
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read the number of crashes: %w", err)
	}
	crashes := 0
	if text := strings.TrimSpace(string(content)); text != "" {
		if crashes, err = strconv.Atoi(text); err != nil {
			return false, fmt.Errorf("read the number of crashes in %s: %w", file, err)
		}
	}
	if crashes >= first {
		return false, nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(crashes+1)), 0o600); err != nil {
		return false, fmt.Errorf("count a crash: %w", err)
	}
	return true, nil
}
