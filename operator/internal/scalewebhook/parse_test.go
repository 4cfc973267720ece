package scalewebhook

import (
	"encoding/json"
	"strings"
	"testing"

	"dormouse.dev/dormouse/operator/internal/text"
)

func TestAnswersAreReadStrictly(t *testing.T) {
	for name, test := range map[string]struct {
		format Format
		body   string
		want   Answer
		// fails is what the message has; empty for a good answer.
		fails string
	}{
		"a number":                   {body: `{"scale":true,"desired_replicas":7}`, want: Answer{true, 7}},
		"with fields of others":      {body: ` {"scale":true,"desired_replicas":7,"why":{"a":[1]}} ` + "\n", want: Answer{true, 7}},
		"the most":                   {body: `{"scale":true,"desired_replicas":10000}`, want: Answer{true, 10000}},
		"one more":                   {body: `{"scale":true,"desired_replicas":10001}`, fails: "from 0 to 10000"},
		"more than 32 bits":          {body: `{"scale":true,"desired_replicas":4294967297}`, fails: "from 0 to 10000"},
		"more than 64 bits":          {body: `{"scale":true,"desired_replicas":18446744073709551617}`, fails: "from 0 to 10000"},
		"less than 64 bits":          {body: `{"scale":true,"desired_replicas":-99999999999999999999}`, fails: "from 0 to 10000"},
		"negative":                   {body: `{"scale":true,"desired_replicas":-1}`, fails: "from 0 to 10000"},
		"no change":                  {body: `{"scale":false}`},
		"no change, and any number":  {body: `{"scale":false,"desired_replicas":-3.5}`},
		"no change, and no number":   {body: `{"scale":false,"desired_replicas":"5"}`, fails: "no number"},
		"a fraction":                 {body: `{"scale":true,"desired_replicas":3.5}`, fails: "whole number"},
		"a fraction of nothing":      {body: `{"scale":true,"desired_replicas":3.0}`, fails: "whole number"},
		"an exponent":                {body: `{"scale":true,"desired_replicas":1e3}`, fails: "whole number"},
		"a string":                   {body: `{"scale":true,"desired_replicas":"5"}`, fails: "no number"},
		"a list":                     {body: `{"scale":true,"desired_replicas":[5]}`, fails: "no number"},
		"a bool":                     {body: `{"scale":true,"desired_replicas":true}`, fails: "no number"},
		"null":                       {body: `{"scale":true,"desired_replicas":null}`, fails: "no desired_replicas"},
		"no number":                  {body: `{"scale":true}`, fails: "no desired_replicas"},
		"no scale":                   {body: `{"desired_replicas":5}`, fails: "no scale"},
		"scale null":                 {body: `{"scale":null,"desired_replicas":5}`, fails: "no scale"},
		"scale a number":             {body: `{"scale":1,"desired_replicas":5}`, fails: "scale has the wrong type: it is a number"},
		"nothing":                    {body: ``, fails: "empty"},
		"white space":                {body: " \r\n\t", fails: "empty"},
		"null alone":                 {body: `null`, fails: "no JSON object"},
		"a number alone":             {body: `5`, fails: "no JSON object"},
		"a list alone":               {body: `[{"scale":true,"desired_replicas":7}]`, fails: "no JSON object"},
		"a page":                     {body: `<html>`, fails: `begins with "<html>"`},
		"no fields":                  {body: `{}`, fails: "no scale"},
		"half of it":                 {body: `{"scale":true,`, fails: "ends within"},
		"two":                        {body: `{"scale":true,"desired_replicas":7}{}`, fails: "something after"},
		"something after":            {body: `{"scale":true,"desired_replicas":7}x`, fails: "something after"},
		"a comma after":              {body: `{"scale":true,"desired_replicas":7},`, fails: "something after"},
		"Agones' format for ours":    {body: `{"response":{"uid":"u","scale":true,"replicas":7}}`, fails: "no scale"},
		"Agones":                     {format: FormatAgones, body: `{"request":null,"response":{"uid":"u","scale":true,"replicas":7}}`, want: Answer{true, 7}},
		"Agones, C# names":           {format: FormatAgones, body: `{"Response":{"UID":"u","Scale":true,"Replicas":7}}`, want: Answer{true, 7}},
		"Agones, no change":          {format: FormatAgones, body: `{"response":{"uid":"u","scale":false,"replicas":3}}`},
		"Agones without uid":         {format: FormatAgones, body: `{"response":{"scale":true,"replicas":7}}`, want: Answer{true, 7}},
		"Agones, another uid":        {format: FormatAgones, body: `{"response":{"uid":"v","scale":true,"replicas":7}}`, fails: "request.uid"},
		"Agones, uid a number":       {format: FormatAgones, body: `{"response":{"uid":5,"scale":true,"replicas":7}}`, fails: "response.uid has the wrong type"},
		"Agones, no response":        {format: FormatAgones, body: `{"request":{}}`, fails: "no response"},
		"Agones, response null":      {format: FormatAgones, body: `{"response":null}`, fails: "no response"},
		"Agones, no replicas":        {format: FormatAgones, body: `{"response":{"uid":"u","scale":true}}`, fails: "no response.replicas"},
		"Agones, no scale":           {format: FormatAgones, body: `{"response":{"uid":"u","replicas":3}}`, fails: "no response.scale"},
		"Agones, 2147483648":         {format: FormatAgones, body: `{"response":{"uid":"u","scale":true,"replicas":2147483648}}`, fails: "from 0 to 10000"},
		"our format for Agones'":     {format: FormatAgones, body: `{"scale":true,"desired_replicas":7}`, fails: "no response"},
		"a uid of control sequences": {format: FormatAgones, body: `{"response":{"uid":"\u001b[2J\u202e","scale":true,"replicas":7}}`, fails: `is "[2J" and`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(test.format, []byte(test.body), "u")
			if test.fails == "" {
				if err != nil || got != test.want {
					t.Errorf("it is %+v, %v; want %+v", got, err, test.want)
				}
				return
			}
			if got != (Answer{}) || ReasonOf(err) != BadAnswer || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("it is %+v, %v; want an error with %q", got, err, test.fails)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, body := range []string{
		`{"scale":true,"desired_replicas":7}`, `{"scale":false}`, `{"response":{"uid":"u","scale":true,"replicas":7}}`,
		`{"scale":true,"desired_replicas":-1}`, `{"scale":true,"desired_replicas":1e999}`, `[`, ``, `null`, "\xff",
	} {
		f.Add(body, true)
		f.Add(body, false)
	}
	f.Fuzz(func(t *testing.T, body string, agones bool) {
		format := FormatDormouse
		if agones {
			format = FormatAgones
		}
		a, err := parse(format, []byte(body), "u")
		switch {
		case err != nil && (a != Answer{} || ReasonOf(err) != BadAnswer):
			t.Errorf("an error with an answer, or of another reason: %+v, %v", a, err)
		case err != nil && len([]rune(err.Error())) > maxMessage+1:
			t.Errorf("a message of %d bytes", len(err.Error()))
		case err == nil && (a.Replicas < 0 || a.Replicas > MaxReplicas || !a.Scale && a.Replicas != 0):
			t.Errorf("it asks for %+v", a)
		case err == nil && !json.Valid([]byte(body)):
			t.Errorf("%q is no JSON", body)
		}
	})
}

func TestAStrangersTextBecomesOneShortLine(t *testing.T) {
	for in, want := range map[string]string{
		"fine":                     "fine",
		"  a\r\n\tb  ":             "a b",
		"a\x1b[31mb\x00\x7f":       "a [31mb",
		"abc\u202edef\u2066\u200b": "abc def",
		"\xff\xfeä":                "ä",
		"1234567890x":              "1234567890…",
		"123456789 x":              "123456789…",
		"":                         "",
	} {
		if got := text.Plain(in, 10); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
