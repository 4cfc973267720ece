package setup

import (
	"os"
	"runtime"
)

// places is for how many goroutines there is a processor's place at least, however few processors there are. While
// all places are taken, Go looks only every ten milliseconds at which connections have something to read, and has that
// stand behind what can run already. A wake call waits for two of these: the call, and the API server's answer.
// With places to spare the kernel shares out the processors, and it prefers who has just waited.
const places = 8

// takePlaces has Go use that many, unless GOMAXPROCS or a limit of processors is set: more than a limit would use up
// at once what it allows for a tenth of a second, and then nothing would run.
func takePlaces() {
	if n := runtime.GOMAXPROCS(0); os.Getenv("GOMAXPROCS") == "" && n == runtime.NumCPU() && n < places {
		runtime.GOMAXPROCS(places)
	}
}
