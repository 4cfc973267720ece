package kit

import "fmt"

// Wrapf says of an error what was done; nil stays nil. Format is an infinitive with its object, such as
// "read Pod %s".
func Wrapf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
