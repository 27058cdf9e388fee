package lab

import (
	"fmt"
	"os"
)

// nginxConfig serves the files of a folder by TLS.
const nginxConfig = `daemon off;
pid %[1]s/nginx-%[2]s.pid;
error_log %[1]s/nginx-%[2]s.log;
worker_processes 1;
events { worker_connections 4096; }
http {
	access_log off;
	server {
		listen 443 ssl;
		listen [::]:443 ssl;
		ssl_certificate %[1]s/origin.pem;
		ssl_certificate_key %[1]s/origin.key;
		root %[1]s/www;
	}
}
`

// StartNginx serves the folder www of the lab's directory by TLS from a server of a topology with NoOrigin.
func (l *Lab) StartNginx(h *Host) (*Process, error) {
	if err := os.MkdirAll(l.Path("www"), 0o755); err != nil {
		return nil, err
	}
	conf := l.Path("nginx-" + h.Name + ".conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConfig, l.Dir, h.Name), 0o644); err != nil {
		return nil, err
	}
	return l.Start(h.Namespace, "nginx-"+h.Name, "nginx", "-c", conf, "-e", l.Path("nginx-start.log"))
}
