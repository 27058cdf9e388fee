package e2e

import (
	"strings"
	"testing"

	"sslo/test/lab"
)

func TestScaffold(t *testing.T) {
	b := up(t, lab.Line(2, lab.Bridge))
	if got := b.fetch("/", lab.ClientOptions{}); !strings.HasPrefix(got, "hello from server1") {
		t.Error(got)
	}
}
