package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runCheck(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRootCmd()
	root.SetOut(&out)
	root.SetErr(&errs)
	code = execute(context.Background(), root, append([]string{"check"}, args...))
	return code, out.String(), errs.String()
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "sslo.yml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestCheckBadFile(t *testing.T) {
	name := write(t, "links: {ext: {nick: eth0}}\nchains: {c: {pools: [ips]}}\n")
	code, stdout, stderr := runCheck(t, name)
	want := name + ":1:9: links.ext: nic is required\n" +
		name + ":1:15: links.ext.nick: unknown key; did you mean \"nic\"?\n" +
		name + ":2:22: chains.c.pools[0]: undefined device pool \"ips\"\n"
	if code != exitFailed || stdout != "" || stderr != want {
		t.Errorf("code %d, stdout %q, stderr:\n%s\nwant:\n%s", code, stdout, stderr, want)
	}
}

func TestCheckGoodFile(t *testing.T) {
	name := write(t, "links: {ext: {nic: no-such-nic}}\n")
	code, stdout, stderr := runCheck(t, name)
	if code != exitOK || !strings.Contains(stdout, "no-such-nic") || !strings.HasPrefix(stderr, "warning: "+name+":") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	code, stdout, _ = runCheck(t, "-o", "json", name)
	if code != exitOK || !json.Valid([]byte(stdout)) {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
}

func TestCheckUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}, {"-o", "xml", "a"}} {
		if code, _, _ := runCheck(t, args...); code != exitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}
