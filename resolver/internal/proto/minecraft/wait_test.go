package minecraft

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhoIsMadeToWait(t *testing.T) {
	for name, c := range map[string]struct {
		head []byte
		want bool
	}{
		"a player of 1.20.4":  {recorded(t, "login_765"), true},
		"a list of 1.20.4":    {recorded(t, "status_765"), false},
		"a player of 1.8.8":   {recorded(t, "login_47"), false},
		"who says nothing":    {nil, false},
		"half a handshake":    {recorded(t, "login_765")[:5], false},
		"one sent from afar":  {handshake("lobby", NextTransfer), true},
		"something else":      {[]byte("GET / HTTP/1.1\r\n\r\n"), false},
		"an ancient list":     {[]byte{0xfe, 0x01}, false},
		"a handshake of none": {[]byte{0x00}, false},
	} {
		if got := (Protocol{}).WouldWait(c.head); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The packet is as https://minecraft.wiki/w/Java_Edition_protocol has it: length,
// number, message, channel.
func TestAQuestionIsALoginPluginRequest(t *testing.T) {
	want := append([]byte{17, 4, 0x80, 0x01, 13}, "dormouse:wait"...)
	if diff := cmp.Diff(want, (Protocol{}).Question(nil, 128)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReplies(t *testing.T) {
	for name, c := range map[string]struct {
		b    string
		size int
		bad  bool
	}{
		"unknown":              {"\x03\x02\x07\x00", 4, false},
		"unknown, and more":    {"\x03\x02\x07\x00\x01", 4, false},
		"known":                {"\x05\x02\x07\x01ab", 6, false},
		"nothing":              {"", 0, false},
		"the length alone":     {"\x03", 0, false},
		"half of a length":     {"\x83", 0, false},
		"all but its end":      {"\x03\x02\x07", 0, false},
		"of another question":  {"\x03\x02\x06\x00", 0, true},
		"another packet":       {"\x03\x01\x07\x00", 0, true},
		"its beginning":        {"\x03\x01", 0, true},
		"without its end":      {"\x02\x02\x07", 0, true},
		"empty":                {"\x00", 0, true},
		"far too long":         {"\xff\xff\x7f", 0, true},
		"of an endless length": {"\xff\xff\xff\xff\xff", 0, true},
	} {
		size, err := (Protocol{}).Reply([]byte(c.b), 7)
		if size != c.size || (err != nil) != c.bad {
			t.Errorf("%s: %d, %v; want %d, an error: %v", name, size, err, c.size, c.bad)
		}
	}
}

func FuzzReply(f *testing.F) {
	f.Add([]byte("\x03\x02\x07\x00"), int32(7))
	f.Fuzz(func(t *testing.T, b []byte, n int32) {
		size, err := (Protocol{}).Reply(b, n)
		if size < 0 || size > len(b) || err != nil && size != 0 {
			t.Errorf("%d of %d bytes, %v", size, len(b), err)
		}
	})
}
