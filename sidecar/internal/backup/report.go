package backup

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Report is how a program ended. The operator reads it from the Pod's termination message.
type Report struct {
	// Bytes is the archive's size.
	Bytes int64 `json:"bytes"`
	// Files is how many files, directories and links were copied.
	Files int64 `json:"files"`
	// SHA256 is the archive's, in hexadecimal.
	SHA256 string `json:"sha256"`
	// Disks are the names of those that were copied, in their order on the command line.
	Disks []string `json:"disks"`
	// Changed is whether something wrote to the disks meanwhile.
	Changed bool `json:"changed"`
	// Between is whether it failed and may have left the disks half moved: another try of the same restoration
	// goes on from there.
	Between bool `json:"between"`
	// Error is why it failed.
	Error string `json:"error"`
}

// mostError bounds Error in bytes: kubelet keeps 4096 of a termination message.
const mostError = 1024

// write writes the report to a file, which is made if it isn't there.
func (r Report) write(file string) error {
	if len(r.Error) > mostError {
		r.Error = strings.ToValidUTF8(r.Error[:mostError], "") + "…"
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
