package config

import (
	"reflect"
	"strings"
)

// field is what the tags of a struct field say.
type field struct {
	index    int
	key      string
	scalar   bool // a scalar in place of the struct sets this field
	list     bool // a list, or one value, in place of the struct sets this field
	named    bool // a mapping from names to structs
	required bool
	deflt    string
	hasDeflt bool
	min, max string
	values   []string
}

func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		key, option, _ := strings.Cut(tag.Get("yaml"), ",")
		if key == "" || key == "-" {
			continue
		}
		f := field{index: i, key: key, scalar: option == "scalar", list: option == "list", required: tag.Get("required") == "true"}
		_, f.named = tag.Lookup("named")
		f.deflt, f.hasDeflt = tag.Lookup("default")
		f.min, f.max = tag.Get("min"), tag.Get("max")
		if values, ok := tag.Lookup("values"); ok {
			f.values = strings.Split(values, ",")
		}
		fields = append(fields, f)
	}
	return fields
}

func nameField(t reflect.Type) (int, bool) {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == ",name" {
			return i, true
		}
	}
	return 0, false
}

// setDefaults fills a struct, and structs inside it, with the defaults of its tags.
func setDefaults(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		fv := v.Field(f.index)
		if fv.Kind() == reflect.Struct && !isScalar(fv.Type()) {
			setDefaults(fv)
			fv = listOf(fv)
		}
		switch {
		case f.hasDeflt && fv.Kind() == reflect.Slice:
			fv.Set(reflect.ValueOf(strings.Split(f.deflt, ",")).Convert(fv.Type()))
		case f.hasDeflt:
			if err := parseScalar(f.deflt, fv); err != nil {
				panic("config: default of " + v.Type().Name() + "." + f.key + ": " + err.Error())
			}
		}
	}
}

// listOf is the field that a list in place of a struct sets, or the struct itself.
func listOf(v reflect.Value) reflect.Value {
	for _, f := range fieldsOf(v.Type()) {
		if f.list {
			return v.Field(f.index)
		}
	}
	return v
}
