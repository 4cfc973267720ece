package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
)

// chapter is the heading under which the vocabulary lists what is not used.
const chapter = "## Not used"

var (
	row  = regexp.MustCompile(`(?m)^\| (.*?) \| (.*?) \|$`)
	code = regexp.MustCompile("`([a-z]+)`")
	// part is a word of a name in camel case.
	part = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
	// sentence is a test's name, or the like.
	sentence = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)
)

// retired reads the words that are not used, and what to say instead of each.
func retired(page string) (map[string]string, error) {
	_, list, found := strings.Cut(page, chapter)
	if !found {
		return nil, fmt.Errorf("there is no chapter %q", chapter)
	}
	words := map[string]string{}
	for _, cells := range row.FindAllStringSubmatch(list, -1) {
		for _, word := range code.FindAllStringSubmatch(cells[1], -1) {
			words[word[1]] = cells[2]
		}
	}
	if len(words) == 0 {
		return nil, errors.New("the chapter lists no words in backticks")
	}
	return words, nil
}

// finding is one use of a retired word.
type finding struct {
	where string
	text  string
}

func (f finding) String() string { return f.where + ": " + f.text }

// check finds the retired words in a file's name and in the names that it declares.
func check(path string, content []byte, words map[string]string) (found []finding, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	name := func(where, name string) {
		if kept[name] {
			return
		}
		for _, word := range part.FindAllString(name, -1) {
			if instead, bad := words[strings.ToLower(word)]; bad {
				found = append(found, finding{where, fmt.Sprintf("%s: instead of %q say: %s", name, strings.ToLower(word), instead)})
			}
		}
	}
	name(path, strings.TrimSuffix(filepath.Base(path), ".go"))
	declare := func(idents ...*ast.Ident) {
		for _, i := range idents {
			name(files.Position(i.Pos()).String(), i.Name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if !sentence.MatchString(n.Name.Name) {
				declare(n.Name)
			}
			if says(n) {
				found = append(found, finding{files.Position(n.Pos()).String(), n.Name.Name + ` returns a bool: begin its comment with "` + n.Name.Name + ` reports whether"`})
			}
		case *ast.TypeSpec:
			declare(n.Name)
		case *ast.ValueSpec:
			declare(n.Names...)
		case *ast.Field:
			declare(n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				declare(identsOf(n.Lhs...)...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				declare(identsOf(n.Key, n.Value)...)
			}
		}
		return true
	})
	return found, nil
}

func identsOf(all ...ast.Expr) (idents []*ast.Ident) {
	for _, e := range all {
		if i, ok := e.(*ast.Ident); ok {
			idents = append(idents, i)
		}
	}
	return idents
}

// says reports whether a function returns one bool and its comment begins "X says".
func says(f *ast.FuncDecl) bool {
	r := f.Type.Results
	if r == nil || len(r.List) != 1 || len(r.List[0].Names) > 1 {
		return false
	}
	i, ok := r.List[0].Type.(*ast.Ident)
	return ok && i.Name == "bool" && strings.HasPrefix(f.Doc.Text(), f.Name.Name+" says ")
}
