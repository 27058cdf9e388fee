package app

import (
	"reflect"
	"testing"

	"sslo/config"
)

// Every timing that can be configured reaches the monitor.
func TestTimingIsWhole(t *testing.T) {
	m := &config.Monitor{}
	v := reflect.ValueOf(m).Elem()
	got := reflect.ValueOf(timing(m))
	for i := range got.NumField() {
		name := got.Type().Field(i).Name
		f := v.FieldByName(name)
		f.SetInt(int64(i) + 1)
		if set := reflect.ValueOf(timing(m)).Field(i).Int(); set != int64(i)+1 {
			t.Errorf("%s: %d", name, set)
		}
	}
}
