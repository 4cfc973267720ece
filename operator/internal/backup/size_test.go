package backup

import "testing"

func TestASizeIsReadable(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0", 168: "168", 10 * 1024: "10Ki", 10*1024 + 1: "11Ki", 431_882_240: "412Mi", 3 << 30: "3Gi", 12 << 30: "12Gi",
	} {
		if got := rounded(bytes).String(); got != want {
			t.Errorf("%d bytes are %s, want %s", bytes, got, want)
		}
	}
}
