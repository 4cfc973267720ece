package gamekinds_test

import (
	"strings"
	"testing"
)

// storage is a disk, without which there is nothing to serve or to copy.
const storage = `[{name: world, mountPath: /world, size: 1Gi}]`

func TestFilesAndBackupAreChecked(t *testing.T) {
	tests := map[string]struct {
		// files and backup are laid over the least that each says.
		files, backup string
		// want is a part of the refusal; empty where nothing is wrong.
		want string
	}{
		"the least":                    {files: `{}`, backup: `{}`},
		"all of files":                 {files: `{service: {type: LoadBalancer, externalTrafficPolicy: Local, annotations: {a: b}}, allowCIDRs: [203.0.113.0/24, "2001:db8::/32"], quota: 10Gi, idleTimeout: 1h, runAsUser: 1000, runAsGroup: 1000}`},
		"no Secret":                    {files: `{secret: null}`, want: "secret"},
		"a Secret in capitals":         {files: `{secret: Keys}`, want: "secret must be the name of a Secret"},
		"another namespace's Secret":   {files: `{secret: other/keys}`, want: "secret must be the name of a Secret"},
		"a network that is none":       {files: `{allowCIDRs: [203.0.113.0]}`, want: "allowCIDRs must be networks such as 203.0.113.0/24"},
		"a quota of nothing":           {files: `{quota: 0}`, want: "quota must be a quantity above 0"},
		"a short idleTimeout":          {files: `{idleTimeout: 30s}`, want: "idleTimeout must be a duration from 1m to 24h"},
		"a traffic policy of no nodes": {files: `{service: {externalTrafficPolicy: Local}}`, want: "externalTrafficPolicy needs type: NodePort or LoadBalancer"},

		"all of backup": {backup: `{onSleep: false, schedule: {cron: "0 4 * * MON-FRI", timeZone: Europe/Berlin}, whileRunning: Copy, onWake: Wait,
			keep: {last: 3, daily: 7, weekly: 4}, timeout: 2h}`},
		"a bucket":                             {backup: `{to: {claim: null, bucket: {endpoint: "https://s3.example.com:9000", name: worlds, region: eu-1, prefix: mine/, secret: keys}}}`},
		"a snapshot":                           {backup: `{to: {claim: null, volumeSnapshot: {className: fast}}}`},
		"a snapshot of the default class":      {backup: `{to: {claim: null, volumeSnapshot: {}}}`},
		"nowhere":                              {backup: `{to: {claim: null}}`, want: "to needs exactly one of claim, bucket and volumeSnapshot"},
		"to two places":                        {backup: `{to: {volumeSnapshot: {}}}`, want: "to needs exactly one of claim, bucket and volumeSnapshot"},
		"another namespace's claim":            {backup: `{to: {claim: {name: other/nas}}}`, want: "name must be the name of a PersistentVolumeClaim"},
		"a service's path":                     {backup: `{to: {claim: null, bucket: {endpoint: "https://s3.example.com/x", name: worlds, secret: keys}}}`, want: "endpoint must be a URL with a host and no path"},
		"no service":                           {backup: `{to: {claim: null, bucket: {endpoint: "ftp://s3.example.com", name: worlds, secret: keys}}}`, want: "endpoint must be a URL with a host and no path"},
		"a bucket in capitals":                 {backup: `{to: {claim: null, bucket: {endpoint: "https://s3.example.com", name: Worlds, secret: keys}}}`, want: "name must be the name of a bucket"},
		"a bucket without a Secret":            {backup: `{to: {claim: null, bucket: {endpoint: "https://s3.example.com", name: worlds}}}`, want: "secret"},
		"a prefix that climbs":                 {backup: `{to: {claim: null, bucket: {endpoint: "https://s3.example.com", name: worlds, secret: keys, prefix: a/../b}}}`, want: "prefix must not begin with / or have .. in it"},
		"a cron of four fields":                {backup: `{schedule: {cron: "0 4 * *  "}}`, want: "cron must have five fields with one space between them"},
		"a time zone that is none":             {backup: `{schedule: {cron: "0 4 * * *", timeZone: Europe/Atlantis}}`, want: "timeZone"},
		"none to keep":                         {backup: `{keep: {last: 0}}`, want: "greater than or equal to 1"},
		"too many to keep":                     {backup: `{keep: {daily: 367}}`, want: "less than or equal to 366"},
		"a short timeout":                      {backup: `{timeout: 59s}`, want: "timeout must be a duration from 1m to 24h"},
		"an unknown way with a game that runs": {backup: `{whileRunning: Stop}`, want: "Unsupported value"},
		"an unknown way with a wake":           {backup: `{onWake: Refuse}`, want: "Unsupported value"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			more := map[string]any{}
			for field, c := range map[string]struct{ least, patch string }{
				"files": {`{secret: keys}`, test.files}, "backup": {`{to: {claim: {name: nas}}}`, test.backup},
			} {
				if c.patch != "" {
					content := parse(t, c.least)
					merge(content, parse(t, c.patch))
					more[field] = content
				}
			}
			disks := parse(t, `{storage: `+storage+`}`)
			ofServer, ofGameType := parse(t, spec), parse(t, spec)
			merge(ofServer, disks)
			merge(ofServer, more)
			merge(ofGameType, disks)
			srv, gt := parse(t, server), parse(t, gameType)
			srv["spec"], gt["spec"] = ofServer, map[string]any{"template": map[string]any{"spec": ofGameType}}
			merge(gt, map[string]any{"spec": more})
			for kind, object := range map[string]map[string]any{"Server": srv, "GameType": gt} {
				refused(t, kind, try(t, object), test.want)
			}
		})
	}
}

// refused checks that something is refused with words, or, without any, that it isn't.
func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: got %v, want a refusal with %q", what, err, want)
	}
}

func TestDisksBackupsAndRestoresAreChecked(t *testing.T) {
	const (
		backup  = "apiVersion: dormouse.dev/v1alpha1\nkind: Backup\nmetadata: {name: b, namespace: default}\nspec: {server: survival-0}"
		restore = "apiVersion: dormouse.dev/v1alpha1\nkind: Restore\nmetadata: {name: r, namespace: default}\nspec: {server: survival-0, backup: b}"
		long    = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	)
	withSpec := func(base, spec string) string { return base + "\nspec: " + spec }
	disk := func(from string) string {
		return withSpec(server, `{template: {spec: {containers: [{name: game, image: game:1}]}}, storage: [{name: world, mountPath: /world, size: 1Gi, from: `+from+`}]}`)
	}
	for name, test := range map[string]struct{ base, patch, want string }{
		"a Backup":                            {backup, `{}`, ""},
		"a Backup of nothing":                 {backup, `{spec: {server: ""}}`, "should be at least 1 chars"},
		"a Backup of another namespace":       {backup, `{spec: {server: games/survival-0}}`, "server must be a Server's name"},
		"a Backup with a long name":           {backup, `{metadata: {name: ` + long + long + `}}`, "metadata.name must have at most 110 characters"},
		"a Restore":                           {restore, `{}`, ""},
		"a Restore of another namespace's":    {restore, `{spec: {backup: games/b}}`, "backup must be a Backup's name"},
		"a Restore of no Backup":              {restore, `{spec: {backup: null}}`, "backup"},
		"a disk from a Server":                {disk(`{server: survival-0}`), `{}`, ""},
		"a disk from a Backup":                {disk(`{backup: b}`), `{}`, ""},
		"a disk from both":                    {disk(`{server: survival-0, backup: b}`), `{}`, "from needs exactly one of server and backup"},
		"a disk from neither":                 {disk(`{}`), `{}`, "from needs exactly one of server and backup"},
		"a disk from another namespace":       {disk(`{server: games/survival-0}`), `{}`, "server must be a Server's name"},
		"files of no disk":                    {withSpec(server, `{files: {secret: keys}, template: {spec: {containers: [{name: game, image: game:1}]}}}`), `{}`, "files and backup are of the disks in storage"},
		"copies of no disk":                   {withSpec(gameType, `{backup: {to: {claim: {name: nas}}}, template: {spec: {template: {spec: {containers: [{name: game, image: game:1}]}}}}}`), `{}`, "files and backup are of the disks in template.spec.storage"},
		"files of a Server with a long name":  {withSpec(server, `{files: {secret: keys}, storage: `+storage+`, template: {spec: {containers: [{name: game, image: game:1}]}}}`), `{metadata: {name: ` + long + `}}`, "metadata.name must have at most 57 characters"},
		"backup in the template of a Fleet":   {withSpec(fleet, `{template: {spec: {backup: {to: {claim: {name: nas}}}, storage: `+storage+`, template: {spec: {containers: [{name: game, image: game:1}]}}}}}`), `{}`, "a template can't have files or backup"},
		"backup in the template of GameType":  {withSpec(gameType, `{template: {spec: {backup: {to: {claim: {name: nas}}}, storage: `+storage+`, template: {spec: {containers: [{name: game, image: game:1}]}}}}}`), `{}`, "a template can't have files or backup"},
		"copies of more places than may have": {withSpec(gameType, `{replicas: 101, backup: {to: {claim: {name: nas}}}, template: {spec: {storage: `+storage+`, template: {spec: {containers: [{name: game, image: game:1}]}}}}}`), `{}`, "with files or backup there can be at most 100 replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			content := parse(t, test.base)
			merge(content, parse(t, test.patch))
			refused(t, name, try(t, content), test.want)
		})
	}
}
