"""The files that settings name: can they be read, and do the listeners' certificates load?"""

from __future__ import annotations

from mqtt_proxy.settings import Settings, SettingsError

FILE_SETTINGS = ("users", "acl", "tls_cert", "tls_key", "tls_ca")


def check_files(settings: Settings) -> None:
    """Raises SettingsError with one line that names the setting and the file."""
    for name in FILE_SETTINGS:
        path = getattr(settings, name)
        try:
            if path:
                open(path, "rb").close()
        except (OSError, ValueError) as error:
            raise SettingsError(f"{name} = {path!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    secured = [options for options in settings.listeners if options.tls]
    if not secured:
        return
    from mqtt_proxy.net.listen_url import ListenError
    from mqtt_proxy.net.tls import read_certificates

    try:
        for options in secured:
            read_certificates(options)
    except ListenError as error:
        raise SettingsError(str(error)) from None
