from mqtt_proxy.net.libc_sockets cimport accept
