"""A folder with the plugin kernels-cuda, which the package octavo finds by its entry point and does not import."""
