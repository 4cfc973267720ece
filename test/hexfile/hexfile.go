// Package hexfile reads recorded bytes from testdata/*.hex: hexadecimal digits
// with spaces and line ends between them, and lines that begin with # to say
// whose bytes they are.
package hexfile

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// Read returns the bytes of a file.
func Read(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read recorded bytes: %w", err)
	}
	digits := strings.Builder{}
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, "#") {
			digits.WriteString(strings.Join(strings.Fields(line), ""))
		}
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		return nil, fmt.Errorf("read recorded bytes of %s: %w", path, err)
	}
	return b, nil
}
