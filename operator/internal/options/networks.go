package options

import (
	"fmt"
	"net/netip"
	"strings"
)

// parseNetworks reads CIDRs that are separated by commas.
func parseNetworks(text string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(word)
		if err != nil {
			return nil, err //nolint:wrapcheck // it quotes the word
		}
		if prefix != prefix.Masked() {
			return nil, fmt.Errorf("%s has bits behind its length: write %s", prefix, prefix.Masked())
		}
		list = append(list, prefix)
	}
	return list, nil
}
