// Command protogen writes the Go code of .proto files: it compiles them, and hands
// them to protoc's plugins, of which each is a program of its own.
//
//	protogen --proto=DIR --output=DIR PLUGIN[:PARAMETER]...
//
// It stands in for protoc, which can't be had as a Go module.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("protogen", flag.ContinueOnError)
	source := flags.String("proto", ".", "directory of the .proto files")
	output := flags.String("output", ".", "directory to write into")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	request, err := compile(ctx, *source)
	if err != nil {
		return err
	}
	for _, plugin := range flags.Args() {
		program, parameter, _ := strings.Cut(plugin, ":")
		request.Parameter = &parameter
		if err := generate(ctx, program, request, *output); err != nil {
			return err
		}
	}
	return nil
}

// compile reads all .proto files of a directory, with what they import.
func compile(ctx context.Context, source string) (*pluginpb.CodeGeneratorRequest, error) {
	paths, err := filepath.Glob(filepath.Join(source, "*.proto"))
	if err != nil {
		return nil, fmt.Errorf("find the files: %w", err)
	}
	request := &pluginpb.CodeGeneratorRequest{}
	for _, path := range paths {
		request.FileToGenerate = append(request.FileToGenerate, filepath.Base(path))
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{source}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, request.GetFileToGenerate()...)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", source, err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		request.ProtoFile = withImports(request.GetProtoFile(), file, seen)
	}
	return request, nil
}

// withImports adds a file after those that it imports.
func withImports(all []*descriptorpb.FileDescriptorProto, file protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[file.Path()] {
		return all
	}
	seen[file.Path()] = true
	imports := file.Imports()
	for i := range imports.Len() {
		all = withImports(all, imports.Get(i).FileDescriptor, seen)
	}
	return append(all, protodesc.ToFileDescriptorProto(file))
}

// generate has a plugin write its files.
func generate(ctx context.Context, program string, request *pluginpb.CodeGeneratorRequest, output string) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", program, err)
	}
	command := exec.CommandContext(ctx, program)
	command.Stdin, command.Stderr = bytes.NewReader(in), os.Stderr
	out, err := command.Output()
	if err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return fmt.Errorf("read the answer of %s: %w", program, err)
	}
	if response.GetError() != "" {
		return fmt.Errorf("run %s: %s", program, response.GetError())
	}
	for _, file := range response.GetFile() {
		path := filepath.Join(output, file.GetName())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		if err := os.WriteFile(path, []byte(file.GetContent()), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}
