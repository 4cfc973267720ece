package backup

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"dormouse.dev/dormouse/internal/flags"
	"dormouse.dev/dormouse/sidecar/internal/backup/store"
)

// The programs.
const (
	commandBackup  = "backup"
	commandRestore = "restore"
	commandSettle  = "settle"
	commandDrop    = "drop-previous"
	commandForget  = "forget"
)

// Is reports whether that is the name of one of the programs.
func Is(command string) bool {
	switch command {
	case commandBackup, commandRestore, commandSettle, commandDrop, commandForget:
		return true
	}
	return false
}

// Options are the settings of a program.
type Options struct {
	// Command is its name.
	Command string
	// Disks are the disks that it is about.
	Disks []Disk
	// Archive is where the archive is, or, of a restoration, the disks that are copied.
	Archive store.Location
	// SHA256 is what the archive's must be, in hexadecimal; empty: it isn't looked at.
	SHA256 string
	// ID is the restoration's name.
	ID string
	S3 store.S3
	// Report is the file that the Report is written to.
	Report   string
	LogLevel slog.Level
}

// Disk is where a disk is mounted.
type Disk struct{ Name, Path string }

const (
	mostDisks = 64
	maxID     = 110
)

var (
	diskName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	idName   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	sha256ID = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Parse reads the settings from the arguments after the program's name, and from the environment, and
// checks them. If help was asked for it writes that to out and returns flag.ErrHelp. With an error,
// too, Report is where that is to be said.
func Parse(command string, args []string, env func(string) (string, bool), out io.Writer) (Options, error) {
	o := Options{Command: command}
	fs := flag.NewFlagSet("sidecar "+command, flag.ContinueOnError)
	fs.SetOutput(out)
	var archive string
	name, use := o.define(fs, &archive)
	fs.StringVar(&o.Report, "report", "/dev/termination-log", "the file that says how it ended, in JSON")
	level := flags.LogLevel(fs)
	fs.Usage = func() {
		fmt.Fprintf(out, "Usage: sidecar %s [flags]\n%s Each flag can be set in the environment, too: --report as %sREPORT.\n\n", command, use, flags.EnvPrefix)
		fs.PrintDefaults()
	}
	if err := flags.Parse(fs, args, env); err != nil {
		return o, err
	}
	var err error
	if o.LogLevel, err = level(); err != nil {
		return o, err
	}
	o.S3.AccessKeyID, _ = env("S3_ACCESS_KEY_ID")
	o.S3.SecretAccessKey, _ = env("S3_SECRET_ACCESS_KEY")
	if name != "" {
		if o.Archive, err = store.ParseLocation(archive); err != nil {
			return o, fmt.Errorf("--%s must be %w", name, err)
		}
	}
	return o, o.validate(name)
}

// define adds the program's own flags, and tells which of them says where the archive is, and what
// the program does.
func (o *Options) define(fs *flag.FlagSet, archive *string) (name, use string) {
	disks := func() {
		fs.Func("disk", "a disk, as <name>=<directory>; once for each", o.addDisk)
	}
	place := func(flagName, what string) {
		name = flagName
		fs.StringVar(archive, flagName, "", what)
		fs.StringVar(&o.S3.Endpoint, "s3-endpoint", "", "the URL of the bucket's service, such as https://s3.example.com; the credentials are S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY in the environment")
		fs.StringVar(&o.S3.Region, "s3-region", "us-east-1", "the bucket's region")
		fs.StringVar(&o.S3.CAFile, "s3-ca-file", "", "a file with certificates, in PEM, that count beside the system's; it may be missing")
	}
	id := func() {
		fs.StringVar(&o.ID, "id", "", "the restoration's name")
	}
	switch o.Command {
	case commandBackup:
		disks()
		place("to", "where the archive goes: file:///<directory>/<directory>/<file> or s3://<bucket>/<key>")
		return name, "Copies disks into an archive."
	case commandRestore:
		disks()
		id()
		place("from", "where the archive is: file:///… or s3://…; or dir:/<directory> with a directory for each disk")
		fs.StringVar(&o.SHA256, "sha256", "", "the archive's SHA-256, in hexadecimal")
		return name, "Puts an archive in place of what is on the disks, which is kept in .dormouse-before-<id>."
	case commandSettle:
		disks()
		id()
		return "", "Ends a restoration that was given up: what it began to move is moved to the end, and what it only extracted is deleted."
	case commandDrop:
		disks()
		id()
		return "", "Deletes what a restoration kept in .dormouse-before-<id>."
	}
	place("at", "where the archive is: file:///… or s3://…")
	return name, "Deletes an archive."
}

func (o *Options) addDisk(value string) error {
	name, path, ok := strings.Cut(value, "=")
	if !ok || !diskName.MatchString(name) || !filepath.IsAbs(path) {
		return fmt.Errorf("must be <name>=<directory>, with an absolute path, not %q", value)
	}
	for _, d := range o.Disks {
		if d.Name == name {
			return fmt.Errorf("%s is there twice", name)
		}
	}
	if len(o.Disks) == mostDisks {
		return fmt.Errorf("there may be %d disks", mostDisks)
	}
	o.Disks = append(o.Disks, Disk{name, filepath.Clean(path)})
	return nil
}

func (o *Options) validate(place string) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Command == commandForget || len(o.Disks) > 0, "--disk must be there at least once")
	check(o.Archive.Dir == "" || o.Command == commandRestore, "--%s must be %w", place, store.ErrLocation)
	check(o.Report != "", "--report must name a file")
	if o.Command == commandRestore || o.Command == commandSettle || o.Command == commandDrop {
		check(len(o.ID) <= maxID && idName.MatchString(o.ID), "--id must be a name of at most %d lower case letters, digits, '-' and '.', not %q", maxID, o.ID)
	}
	check(o.SHA256 == "" || sha256ID.MatchString(o.SHA256), "--sha256 must be 64 hexadecimal digits")
	check(o.SHA256 == "" || o.Archive.Dir == "", "--sha256 is for archives, not for dir:")
	if o.Archive.Bucket != "" {
		u, err := url.Parse(o.S3.Endpoint)
		check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.Trim(u.Path, "/") == "" && u.User == nil,
			"--s3-endpoint must be a URL with a host and no path, such as https://s3.example.com")
		check(o.S3.AccessKeyID != "" && o.S3.SecretAccessKey != "", "S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY must be in the environment")
	}
	return errors.Join(errs...)
}
