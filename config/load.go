package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"time"
)

// maxFile bounds every file that is read; /dev/zero has no end.
const maxFile = 4 << 20

var errTooLarge = errors.New("larger than 4 MiB")

// NIC is what a check needs to know of a network interface.
type NIC struct {
	MTU     int
	Virtual bool // no hardware behind it
}

// Host tells about the machine that the configuration is for.
type Host interface {
	NIC(name string) (NIC, bool)
}

// Loader reads configurations. The zero value reads files and interfaces of this machine.
type Loader struct {
	ReadFile func(name string) ([]byte, error)
	Host     Host
	Now      func() time.Time
}

// Load reads the configuration file at path. The error is Errors when the content is wrong.
func Load(path string) (*Config, error) { return Loader{}.Load(path) }

// Parse is Load of data that is in memory. File names in it are relative to the folder of name.
func Parse(name string, data []byte) (*Config, error) { return Loader{}.Parse(name, data) }

// Load reads the configuration file at path.
func (l Loader) Load(path string) (*Config, error) {
	data, err := l.orDefaults().ReadFile(path)
	if err != nil {
		return nil, Errors{{File: path, Msg: reason(err)}}
	}
	return l.Parse(path, data)
}

// Parse decodes and checks data.
func (l Loader) Parse(name string, data []byte) (*Config, error) {
	c := &Config{File: name}
	setDefaults(reflect.ValueOf(c).Elem())
	src := newSource(name)
	decode(data, c, src)
	ch := &checker{source: src, Config: c, Loader: l.orDefaults(), dir: filepath.Dir(name)}
	ch.check()
	if len(src.errs) > 0 {
		return nil, src.errs.sorted()
	}
	c.Warnings = src.warnings.sorted()
	return c, nil
}

func (l Loader) orDefaults() Loader {
	if l.ReadFile == nil {
		l.ReadFile = readFile
	}
	if l.Host == nil {
		l.Host = machine{}
	}
	if l.Now == nil {
		l.Now = time.Now
	}
	return l
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return nil, errors.Join(err, &fs.PathError{Op: "read", Path: name, Err: errors.New("is a directory")})
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(data) > maxFile {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errTooLarge}
	}
	return data, err
}

// reason leaves out what the position says already.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Sprintf("can not read it: %v", p.Err)
	}
	return fmt.Sprintf("can not read it: %v", err)
}

// machine is the Host that this process runs on.
type machine struct{}

func (machine) NIC(name string) (NIC, bool) {
	ifc, err := net.InterfaceByName(name)
	if err != nil {
		return NIC{}, false
	}
	_, err = os.Stat(filepath.Join("/sys/class/net", name, "device"))
	return NIC{MTU: ifc.MTU, Virtual: errors.Is(err, fs.ErrNotExist)}, true
}
