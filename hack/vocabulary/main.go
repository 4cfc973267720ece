// Command vocabulary refuses the words that docs/vocabulary.md retires: in the names of Go
// files and of what they declare. It also refuses a comment that begins "X says" on a function
// that returns a bool, where Go's own begin "X reports whether".
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// kept are names of the API, which outlive the words that they are made of.
var kept = map[string]bool{
	"PlayersKnown": true, "playersKnown": true,
	"WakePlayersKnown": true, "wakePlayersKnown": true,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vocabulary:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("vocabulary", flag.ContinueOnError)
	page := flags.String("page", "docs/vocabulary.md", "the page whose last chapter lists the retired words")
	root := flags.String("root", ".", "directory of the Go files")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	content, err := os.ReadFile(*page)
	if err != nil {
		return fmt.Errorf("read the vocabulary: %w", err)
	}
	words, err := retired(string(content))
	if err != nil {
		return fmt.Errorf("read %s: %w", *page, err)
	}
	var found []finding
	tree := os.DirFS(*root)
	err = fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || d.Name() == ".git"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		content, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		all, err := check(path, content, words)
		found = append(found, all...)
		return err
	})
	if err != nil {
		return err
	}
	for _, f := range found {
		fmt.Fprintln(os.Stderr, f)
	}
	if len(found) > 0 {
		return fmt.Errorf("%d names or comments are not in the words of %s", len(found), *page)
	}
	return nil
}
