package options

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string // in the error; empty: taken
	}{
		"a namespace is enough":                       {[]string{"--namespace=dormouse-system"}, ""},
		"a missing namespace is refused":              {nil, "set it, or POD_NAMESPACE"},
		"an address without a port is refused":        {[]string{"--namespace=x", "--listen=localhost"}, "--listen=localhost must be an address"},
		"a resolver port beyond the range is refused": {[]string{"--namespace=x", "--resolver-port=70000"}, "--resolver-port=70000 must be from 1 to 65535"},
		"a selector that is none is refused":          {[]string{"--namespace=x", "--resolver-selector=a=b=c"}, "must be a label selector"},
		"an empty selector is refused":                {[]string{"--namespace=x", "--resolver-selector="}, "must be a label selector"},
		"an address with a named port is refused":     {[]string{"--namespace=x", "--listen=:http"}, "must have a number"},
		"an own selector that is none is refused":     {[]string{"--namespace=x", "--selector="}, "--selector=\"\" must be a label selector"},
		"an empty own service account is refused":     {[]string{"--namespace=x", "--service-account="}, "--service-account must not be empty"},
		"an empty service account is refused":         {[]string{"--namespace=x", "--resolver-service-account="}, "must not be empty"},
		"networks of outbound calls are taken":        {[]string{"--namespace=x", "--outbound-networks=192.0.2.0/24, 2001:db8::/32"}, ""},
		"an address is no network":                    {[]string{"--namespace=x", "--outbound-networks=192.0.2.1"}, "must be CIDRs such as"},
		"a network with bits behind it is refused":    {[]string{"--namespace=x", "--outbound-networks=192.0.2.1/24"}, "write 192.0.2.0/24"},
		"prices are taken":                            {[]string{"--namespace=x", "--price-cpu-hour=0.04", "--price-memory-gib-hour=0.005", "--currency=EUR"}, ""},
		"a price without a currency is refused":       {[]string{"--namespace=x", "--price-cpu-hour=0.04"}, "--currency belongs to"},
		"a currency without a price is refused":       {[]string{"--namespace=x", "--currency=EUR"}, "--currency belongs to"},
		"a currency of other signs is refused":        {[]string{"--namespace=x", "--price-cpu-hour=1", "--currency=E U"}, "--currency=E U must be"},
		"a negative price is refused":                 {[]string{"--namespace=x", "--price-cpu-hour=-1", "--currency=EUR"}, "--price-cpu-hour=-1 must be a number from 0"},
		"a price that is no number is refused":        {[]string{"--namespace=x", "--price-memory-gib-hour=NaN", "--currency=EUR"}, "--price-memory-gib-hour=NaN must be"},
		"an argument is refused":                      {[]string{"--namespace=x", "run"}, `unexpected argument "run"`},
		"an unknown flag is refused":                  {[]string{"--namespace=x", "--port=1"}, "flag provided but not defined"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAMESPACE", "")
			_, err := Parse(c.args)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("Parse = %v, want no error", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("Parse = %v, want an error with %q", err, c.want)
			}
		})
	}
}
